// Package document reads JSON documents, and says which values say the same.
package document

import (
	"encoding/json"
	"reflect"
	"strings"
)

// Read reads a document into what a pointer points to. Numbers of no type of their own become [json.Number], with all their digits: a float64
// would change whole numbers beyond 2⁵³, and who writes the document back would not know.
func Read(text string, into any) error {
	if !json.Valid([]byte(text)) {
		// Says why; a decoder would not see what follows the first value.
		return json.Unmarshal([]byte(text), into)
	}
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	return decoder.Decode(into)
}

// Equal says whether two values are deeply equal. Numbers in objects and lists without types of their own are if they say the same: as Go has
// them, or as they are read.
func Equal(one, other any) bool {
	switch one := one.(type) {
	case map[string]any:
		other, ok := other.(map[string]any)
		if !ok || len(one) != len(other) || (one == nil) != (other == nil) {
			return false
		}
		for name, value := range one {
			same, there := other[name]
			if !there || !Equal(value, same) {
				return false
			}
		}
		return true
	case []any:
		other, ok := other.([]any)
		if !ok || len(one) != len(other) || (one == nil) != (other == nil) {
			return false
		}
		for i, value := range one {
			if !Equal(value, other[i]) {
				return false
			}
		}
		return true
	}
	if number, is := numberOf(one); is {
		same, is := numberOf(other)
		return is && equalNumbers(number, same)
	}
	return reflect.DeepEqual(one, other)
}

// numberOf returns a number as a document has it.
func numberOf(value any) (json.Number, bool) {
	if number, is := value.(json.Number); is {
		return number, true
	}
	switch reflect.ValueOf(value).Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Float32, reflect.Float64:
		text, err := json.Marshal(value)
		return json.Number(text), err == nil && !strings.HasPrefix(string(text), `"`)
	default:
		return "", false
	}
}

func equalNumbers(one, other json.Number) bool {
	if one == other {
		return true
	}
	isWhole := func(number json.Number) bool { return !strings.ContainsAny(string(number), ".eE") }
	if isWhole(one) && isWhole(other) {
		return false
	}
	first, err := one.Float64()
	if err != nil {
		return false
	}
	second, err := other.Float64()
	return err == nil && first == second
}
