// Whole numbers that a float64 can't tell apart.

package capstan

import (
	"encoding/json"
	"testing"
)

func TestNumbersOfAnyTypeKeepTheirDigits(t *testing.T) {
	const text = `{"big":9007199254740993,"deep":[{"n":18446744073709551615}],"small":1.50}`
	object, err := decode[Object](text)
	equal(t, err, nil)
	equal(t, object["big"], any(json.Number("9007199254740993")))
	written, err := encode(object)
	equal(t, err, nil)
	equal(t, written, text)
	mixed, err := decode[struct {
		Big  int64  `json:"big"`
		Deep any    `json:"deep"`
		More Object `json:"more,omitempty"`
	}](text)
	equal(t, err, nil)
	equal(t, mixed.Big, int64(9007199254740993))
	written, _ = encode(mixed)
	equal(t, written, `{"big":9007199254740993,"deep":[{"n":18446744073709551615}]}`)
}

func TestADocumentIsOneValueAndNothingElse(t *testing.T) {
	for document, said := range map[string]string{
		"":      "not a valid object: unexpected end of JSON input",
		"{":     "not a valid object: unexpected end of JSON input",
		"{} {}": "not a valid object: invalid character '{' after top-level value",
		"[1]":   "not a valid object: json: cannot unmarshal array into Go value of type map[string]interface {}",
	} {
		_, err := decode[Object](document)
		equal(t, text(err), said)
	}
	_, err := decode[Object](" {} \n")
	equal(t, err, nil)
}

func TestNumbersAreEqualThatAreWrittenDifferently(t *testing.T) {
	of := func(text string) any { value, _ := decode[any](text); return value }
	for _, row := range []struct {
		actual, desired any
		equal           bool
	}{
		{of(`{"a":[1,{"b":2}]}`), of(`{"a":[1.0,{"b":2e0}]}`), true},
		{of(`9007199254740993`), of(`9007199254740992`), false},
		{of(`{"a":1}`), of(`{"a":1,"b":null}`), false},
		{of(`{"a":1}`), of(`{"a":2}`), false},
		{of(`[1]`), of(`[1,2]`), false},
		{of(`1`), of(`"1"`), false},
		{of(`null`), nil, true},
		{[]int{1}, []int{1}, true},
		{of(`{"a":3}`), Object{"a": 3}, true},
		{of(`{"a":3.5}`), Object{"a": 3.5}, true},
		{of(`{"a":3}`), Object{"a": "3"}, false},
	} {
		equal(t, Equal("differs", row.actual, row.desired) == "", row.equal)
		equal(t, Equal("differs", row.desired, row.actual) == "", row.equal)
	}
}
