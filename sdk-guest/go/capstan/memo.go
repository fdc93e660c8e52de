// Values that the daemon keeps.

package capstan

// Lifetime is how long a memo is kept.
type Lifetime uint8

// The lifetimes.
const (
	// ForRun: as long as the run; hands values from one function to another.
	ForRun Lifetime = iota
	// ForPrimary: as long as the primary; lost when the daemon stops.
	ForPrimary
	// ForPlugin: as long as the plugin's version is loaded. All its runs share it; the last writer wins.
	ForPlugin
)

// Memo returns a value that the daemon keeps, because instances share nothing and do not last; nil if there is none.
//
//	seen, err := run.Memo[int](capstan.ForPrimary, "seen")
func (r Run) Memo[T any](lifetime Lifetime, key string) (*T, error) {
	value, err := decodeIf[T](r.ask().Memo(lifetime, key))
	return value, within("memo "+key, err)
}

// SetMemo keeps a value. Fails with [ErrExhausted] beyond the manifest's bound.
func (r Run) SetMemo(lifetime Lifetime, key string, value any) error {
	text, err := encode(value)
	if err != nil {
		return within("memo "+key, err)
	}
	return r.ask().SetMemo(lifetime, key, &text)
}

// RemoveMemo forgets a value.
func (r Run) RemoveMemo(lifetime Lifetime, key string) error {
	return r.ask().SetMemo(lifetime, key, nil)
}
