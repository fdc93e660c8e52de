// Brings what slog writes into the daemon's log.

package capstan

import (
	"context"
	"log/slog"
	"slices"
)

// LevelTrace is for each step: the daemon has one level more than slog.
const LevelTrace = slog.Level(-8)

// logHandler writes slog's records to the daemon's log.
type logHandler struct {
	daemon Daemon
	// What comes before the name of a field.
	prefix string
	fields [][2]string
}

// Enabled leaves the choice of levels to the daemon, which knows its own filter.
func (h logHandler) Enabled(context.Context, slog.Level) bool { return true }

// Handle writes one record.
func (h logHandler) Handle(_ context.Context, record slog.Record) error {
	fields := slices.Clone(h.fields)
	record.Attrs(func(attr slog.Attr) bool {
		fields = appendField(fields, h.prefix, attr)
		return true
	})
	h.daemon.Log(record.Level, record.Message, fields)
	return nil
}

// WithAttrs returns a handler that adds these to each record.
func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.fields = slices.Clone(h.fields)
	for _, attr := range attrs {
		h.fields = appendField(h.fields, h.prefix, attr)
	}
	return h
}

// WithGroup returns a handler that puts the group's name before the names of fields.
func (h logHandler) WithGroup(name string) slog.Handler {
	if name != "" {
		h.prefix += name + "."
	}
	return h
}

// appendField adds an attribute; a group becomes several fields.
func appendField(fields [][2]string, prefix string, attr slog.Attr) [][2]string {
	value := attr.Value.Resolve()
	if value.Kind() != slog.KindGroup {
		if attr.Key == "" {
			return fields
		}
		return append(fields, [2]string{prefix + attr.Key, value.String()})
	}
	if attr.Key != "" {
		prefix += attr.Key + "."
	}
	for _, inner := range value.Group() {
		fields = appendField(fields, prefix, inner)
	}
	return fields
}
