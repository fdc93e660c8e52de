// Package runtime gives the daemon memory of the component, and says when the component may call the daemon.
package runtime

import (
	"runtime"
	"sync"
	"unsafe"
)

// Allocate returns memory that stays where it is, and is not collected, until the pinner lets go of it. Its address is
// a multiple of 8, which is enough for everything that the component model knows.
func Allocate(pinner *runtime.Pinner, size, _ uintptr) unsafe.Pointer {
	if size == 0 {
		return nil
	}
	memory := unsafe.Pointer(unsafe.SliceData(make([]uint64, (size+7)/8)))
	pinner.Pin(memory)
	return memory
}

// The memory that the daemon has asked for, until what it wrote there has become Go values.
var given runtime.Pinner

// Unpin lets go of the memory that the daemon has asked for: what is in it has become Go values.
func Unpin() { given.Unpin() }

// realloc is what the daemon calls to get memory for arguments of exports and for answers of imports.
//
//go:wasmexport cabi_realloc
func realloc(old unsafe.Pointer, oldSize, align, size uintptr) unsafe.Pointer {
	memory := Allocate(&given, size, align)
	if oldSize > 0 {
		copy(unsafe.Slice((*byte)(memory), size), unsafe.Slice((*byte)(old), oldSize))
	}
	return memory
}

// What the adapter (adapter/adapter.wat) is told.
const (
	forbidden uint32 = iota
	permitted
	starting
)

// allow tells the adapter whether imports may be called.
//
//go:wasmimport wasi_snapshot_preview1 capstan_calls
func allow(calls uint32)

// The component model forbids imports while the daemon allocates memory in the component: before the function of an
// export runs, and at the end of an import. Go may switch to any goroutine at such a moment, so a goroutine that wants to
// import has to wait: gate is held while another one imports, and between calls.
var (
	gate sync.Mutex
	// What the adapter is told while nobody holds the gate.
	calls = starting
)

// Call runs the function of an export; imports may be called meanwhile.
func Call[T any](function func() T) T {
	if calls == permitted {
		gate.Unlock()
	}
	calls = permitted
	allow(calls)
	answer := function()
	gate.Lock()
	allow(forbidden)
	return answer
}

// Import calls an import.
func Import[T any](function func() T) T {
	gate.Lock()
	allow(forbidden)
	answer := function()
	Unpin()
	allow(calls)
	gate.Unlock()
	return answer
}
