// Package types has the values of the component model that Go lacks, as the generated bindings use them.
package types

// Unit is the payload of a result that has none.
type Unit struct{}

// Tags of an [Option] and of a [Result].
const (
	OptionNone uint8 = 0
	OptionSome uint8 = 1
	ResultOk   uint8 = 0
	ResultErr  uint8 = 1
)

// Option is a value or none.
type Option[T any] struct {
	tag   uint8
	value T
}

// None returns no value.
func None[T any]() Option[T] { return Option[T]{} }

// Some returns a value.
func Some[T any](value T) Option[T] { return Option[T]{OptionSome, value} }

// Tag returns [OptionNone] or [OptionSome].
func (o Option[T]) Tag() uint8 { return o.tag }

// Some returns the value, which is the zero value if there is none.
func (o Option[T]) Some() T { return o.value }

// Result is an answer or an error.
type Result[T, E any] struct {
	tag uint8
	ok  T
	err E
}

// Ok returns an answer.
func Ok[T, E any](answer T) Result[T, E] { return Result[T, E]{tag: ResultOk, ok: answer} }

// Err returns an error.
func Err[T, E any](err E) Result[T, E] { return Result[T, E]{tag: ResultErr, err: err} }

// Tag returns [ResultOk] or [ResultErr].
func (r Result[T, E]) Tag() uint8 { return r.tag }

// Ok returns the answer, which is the zero value if there is an error.
func (r Result[T, E]) Ok() T { return r.ok }

// Err returns the error, which is the zero value if there is an answer.
func (r Result[T, E]) Err() E { return r.err }
