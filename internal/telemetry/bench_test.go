package telemetry

import (
	"io"
	"log/slog"
	"testing"
)

// One line for each decision is the dearest thing that the server does besides
// talking to its peers; see docs/performance.md.
func BenchmarkLineOfADecision(b *testing.B) {
	log := NewLogger(io.Discard, slog.LevelInfo)
	attrs := []slog.Attr{
		slog.String("id", "0198a2b4-5c6d-7e8f-9012-3456789abcde"), slog.String("operation", "debit"), slog.String("caller", "till-1"),
		slog.String("decision", "APPROVED"), slog.Bool("replayed", false), slog.Int("status", 200),
		slog.String("outcome", "approved"), slog.String("reason", "answered"),
		slog.Int64("claim_ms", 3), slog.Int64("call_ms", 21), slog.Int64("store_ms", 4), slog.Int64("total_ms", 29), slog.Int64("left_ms", 2171),
	}
	b.ReportAllocs()
	for b.Loop() {
		log.LogAttrs(b.Context(), slog.LevelInfo, "payment decided", attrs...)
	}
}
