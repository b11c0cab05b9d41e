package wallet

import (
	"context"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/safeledger/safeledger/internal/payment"
	"github.com/safeledger/safeledger/internal/tracing"
	"github.com/safeledger/safeledger/internal/wallet/wallettest"
)

// The wallet's own traces go on below the call, and not below the till's request; where
// nothing is traced it gets no field at all, and a till's tracestate stays with us
// in any case.
func TestAWalletHearsOfItsOwnCallOnly(t *testing.T) {
	t.Parallel()
	w := wallettest.New(t, wallettest.Serve(wallettest.Applied))
	c := newClient(t, w)
	recorder := tracetest.NewSpanRecorder()
	provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(recorder))
	till := tracing.Continue(within(t, callLimit), []string{"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}, []string{"till=7"})
	traced, request := provider.Tracer("test").Start(till, "POST /debits")
	unsampled := trace.ContextWithSpanContext(within(t, callLimit), request.SpanContext().WithTraceFlags(0))

	for name, ctx := range map[string]context.Context{"off": within(t, callLimit), "on": traced, "left out": unsampled} {
		if got := c.Decisions().Send(ctx, instruction(payment.Debit, name)); got.Class != payment.Success {
			t.Fatalf("%s: %+v", name, got)
		}
	}
	want := map[string]string{
		reference("off").String():      "",
		reference("left out").String(): tracing.Traceparent(unsampled),
	}
	ended := recorder.Ended()
	if len(ended) != 1 || ended[0].Name() != "wallet debit" || ended[0].Parent().SpanID() != request.SpanContext().SpanID() {
		t.Fatalf("ended are %v", ended)
	}
	want[reference("on").String()] = tracing.Traceparent(trace.ContextWithSpanContext(t.Context(), ended[0].SpanContext()))
	for _, r := range w.Requests() {
		if got := r.Header.Get("Traceparent"); got != want[r.Header.Get("Idempotency-Key")] {
			t.Errorf("traceparent is %q, want %q", got, want[r.Header.Get("Idempotency-Key")])
		}
		if r.Header.Get("Tracestate") != "" || r.Header.Get("Baggage") != "" {
			t.Errorf("what is the till's went to the wallet: %v", r.Header)
		}
	}
	if n := len(w.Requests()); n != 3 {
		t.Errorf("%d requests", n)
	}
}
