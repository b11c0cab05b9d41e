package e2e

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	spans "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// sink is a collector as OpenTelemetry has them, in this process.
type sink struct {
	t   *testing.T
	url string

	mu   sync.Mutex
	got  []*spans.Span
	from []string // the names of the services that sent
	more chan struct{}
}

func newSink(t *testing.T) *sink {
	t.Helper()
	s := &sink{t: t, more: make(chan struct{}, 1)}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

func (s *sink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var request collector.ExportTraceServiceRequest
	if err != nil || proto.Unmarshal(body, &request) != nil || r.URL.Path != "/v1/traces" {
		s.t.Errorf("not an export: %s, %v", r.URL.Path, err)
		return
	}
	s.mu.Lock()
	for _, resource := range request.GetResourceSpans() {
		for _, a := range resource.GetResource().GetAttributes() {
			if a.GetKey() == "service.name" {
				s.from = append(s.from, a.GetValue().GetStringValue())
			}
		}
		for _, scope := range resource.GetScopeSpans() {
			s.got = append(s.got, scope.GetSpans()...)
		}
	}
	s.mu.Unlock()
	select {
	case s.more <- struct{}{}:
	default:
	}
	answer, err := proto.Marshal(&collector.ExportTraceServiceResponse{})
	if err != nil {
		s.t.Error(err)
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
	_, _ = w.Write(answer)
}

func (s *sink) all() []*spans.Span {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.got)
}

// await waits for a span that is wanted.
func (s *sink) await(wanted func(*spans.Span) bool) *spans.Span {
	s.t.Helper()
	timeout := time.After(patience)
	for {
		all := s.all()
		if i := slices.IndexFunc(all, wanted); i >= 0 {
			return all[i]
		}
		select {
		case <-s.more:
		case <-timeout:
			s.t.Fatalf("the span never came, but %v", tree(all, nil))
		}
	}
}

func named(name, trace string) func(*spans.Span) bool {
	return func(s *spans.Span) bool { return s.GetName() == name && (trace == "" || traceOf(s) == trace) }
}

func traceOf(s *spans.Span) string { return hex.EncodeToString(s.GetTraceId()) }

// tree are the spans below the one of this id, each by its name and those below it in
// brackets, in the order in which they began.
func tree(all []*spans.Span, id []byte) []string {
	var below []*spans.Span
	for _, s := range all {
		if string(s.GetParentSpanId()) == string(id) {
			below = append(below, s)
		}
	}
	slices.SortFunc(below, func(a, b *spans.Span) int {
		return int(int64(a.GetStartTimeUnixNano()) - int64(b.GetStartTimeUnixNano()))
	})
	names := []string{}
	for _, s := range below {
		name := s.GetName()
		if inner := tree(all, s.GetSpanId()); len(inner) > 0 {
			name += " [" + strings.Join(inner, ", ") + "]"
		}
		names = append(names, name)
	}
	return names
}

// attributes are those of a span, as text.
func attributes(s *spans.Span) map[string]string {
	all := map[string]string{}
	for _, a := range s.GetAttributes() {
		switch v := a.GetValue(); {
		case v.GetStringValue() != "":
			all[a.GetKey()] = v.GetStringValue()
		default:
			all[a.GetKey()] = fmt.Sprint(v.GetIntValue())
		}
	}
	return all
}

const (
	tillsTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	tillsSpan  = "00f067aa0ba902b7"
)

// send asks for something as a part of a till's trace, with fields that are not in our
// document: they are the business of those in between.
func (r *replica) send(path, key, body, traceparent string) reply {
	r.w.t.Helper()
	req, err := http.NewRequestWithContext(r.w.t.Context(), http.MethodPost, r.http+path, strings.NewReader(body))
	if err != nil {
		r.w.t.Fatal(err)
	}
	req.GetBody = nil
	req.Header.Set("Idempotency-Key", key)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("traceparent", traceparent)
	req.Header.Set("tracestate", "till=7")
	req.Header.Set("baggage", "account=ANNA")
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.w.t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		r.w.t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, string(answer), resp.Close}
}

// traced is a replica that sends its spans to s soon after they have ended.
func (w *world) traced(s *sink, env ...string) *replica {
	w.t.Helper()
	return w.start(plain, append([]string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + s.url, "OTEL_BSP_SCHEDULE_DELAY=20"}, env...)...)
}

// checkSpans holds traces to the rule of the log: they are read by more people, and sent
// further. What tills name freely is not in them.
func (s *sink) checkSpans() {
	s.t.Helper()
	for _, span := range s.all() {
		text := span.String()
		for _, secret := range secrets {
			if strings.Contains(text, secret) {
				s.t.Errorf("a span holds %q: %s", secret, text)
			}
		}
	}
}

const anna = `{"account": "ANNA", "amount": 1250, "currency": "EUR"}`

// Whoever looks for the second that a till waited must find it in the till's own trace:
// the request with its claim, its wallet call and its store, each below the other.
func TestADebitIsInTheTracesOfItsTill(t *testing.T) {
	t.Parallel()
	w, s := newWorld(t), newSink(t)
	r := w.traced(s, append(quick, "OTEL_SERVICE_NAME=payments")...)
	answer := r.send("/debits", "key-of-debit", anna, "00-"+tillsTrace+"-"+tillsSpan+"-01")
	if answer.status != http.StatusCreated {
		t.Fatalf("%d %s", answer.status, answer.body)
	}
	request := s.await(named("POST /debits", tillsTrace))
	if got := hex.EncodeToString(request.GetParentSpanId()); got != tillsSpan {
		t.Errorf("the request is below %s, want the till's span", got)
	}
	if request.GetTraceState() != "till=7" {
		t.Errorf("tracestate is %q", request.GetTraceState())
	}
	if diff := cmp.Diff([]string{"claim", "wallet debit", "store"}, tree(s.all(), request.GetSpanId())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	got := attributes(request)
	for name, want := range map[string]string{
		"http.request.method": "POST", "http.route": "/debits", "http.response.status_code": "201",
		"safeledger.caller": "store-17", "safeledger.payment.id": answer.member("id"), "safeledger.payment.decision": "APPROVED",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	if len(s.from) == 0 || s.from[0] != "payments" {
		t.Errorf("the service is %q", s.from)
	}
	// The line of the log leads to the trace.
	var line struct {
		Trace string `json:"trace_id"`
	}
	if err := json.Unmarshal([]byte(r.log.await(t, r.exited, `"msg":"payment decided"`)), &line); err != nil || line.Trace != tillsTrace {
		t.Errorf("the line has trace %q, %v", line.Trace, err)
	}
	s.checkSpans()
}

// An attempt may come days after the request: it has a trace of its own, and a link to
// the request, however often another replica takes the follow-up up.
func TestAnAttemptIsLinkedToTheRequestThatItWasAcceptedBy(t *testing.T) {
	t.Parallel()
	w, s := newWorld(t), newSink(t)
	r := w.traced(s, hurried...)
	w.wallet.SetBalance("ANNA", "EUR", 0)
	answer := r.send("/credits", "key-of-credit", anna, "00-"+tillsTrace+"-"+tillsSpan+"-01")
	if answer.status != http.StatusAccepted {
		t.Fatalf("%d %s", answer.status, answer.body)
	}
	request, attempt := s.await(named("POST /credits", tillsTrace)), s.await(named("attempt credit", ""))
	if got := tree(s.all(), request.GetSpanId()); !slices.Equal(got, []string{"accept"}) {
		t.Errorf("below the request: %v", got)
	}
	if got := tree(s.all(), attempt.GetSpanId()); !slices.Equal(got, []string{"wallet credit", "settle"}) {
		t.Errorf("below the attempt: %v", got)
	}
	s.checkLink(attempt, request)
	if got := attributes(attempt); got["safeledger.follow_up.id"] != answer.member("id") || got["safeledger.follow_up.state"] != "SUCCEEDED" {
		t.Errorf("the attempt says %v", got)
	}
	s.checkSpans()
}

func (s *sink) checkLink(attempt, request *spans.Span) {
	s.t.Helper()
	if traceOf(attempt) == traceOf(request) || len(attempt.GetParentSpanId()) > 0 {
		s.t.Errorf("the attempt is in the request's trace, below %x", attempt.GetParentSpanId())
	}
	if len(attempt.GetLinks()) != 1 || string(attempt.GetLinks()[0].GetSpanId()) != string(request.GetSpanId()) ||
		string(attempt.GetLinks()[0].GetTraceId()) != string(request.GetTraceId()) {
		s.t.Errorf("the attempt is linked to %v, want the request %x", attempt.GetLinks(), request.GetSpanId())
	}
}

// A doubt is the case that somebody looks for: the call that did not come back, the
// lookup, and the reversal's attempts, which go back to the declined request.
func TestADoubtAndItsReversalAreInTheTraces(t *testing.T) {
	t.Parallel()
	w, s := newWorld(t), newSink(t)
	r := w.traced(s, hurried...)
	answer := r.send("/debits", "key-of-doubt", strings.Replace(anna, "ANNA", "HANG-ANNA", 1), "00-"+tillsTrace+"-"+tillsSpan+"-01")
	if answer.status != http.StatusFailedDependency {
		t.Fatalf("%d %s", answer.status, answer.body)
	}
	request := s.await(named("POST /debits", tillsTrace))
	if got := tree(s.all(), request.GetSpanId()); !slices.Equal(got, []string{"claim", "wallet debit", "wallet lookup", "store"}) {
		t.Errorf("below the request: %v", got)
	}
	call := s.await(named("wallet debit", tillsTrace))
	if got := attributes(call); got["safeledger.wallet.reason"] != "timeout" || call.GetStatus().GetCode() != spans.Status_STATUS_CODE_ERROR {
		t.Errorf("the call says %v %v", got, call.GetStatus())
	}
	attempt := s.await(named("attempt reversal", ""))
	s.checkLink(attempt, request)
	s.checkSpans()
}

// A trace that was left out by the one who began it stays left out, from the wallet call
// to the last attempt: the price of tracing is the till's to choose, unless we are told
// otherwise. The process sends what it has when it is stopped.
func TestWhatIsNotSampledStaysOut(t *testing.T) {
	t.Parallel()
	w, s := newWorld(t), newSink(t)
	w.wallet.SetBalance("ANNA", "EUR", 0)
	// A machine that is out of breath may take longer than the end of a process allows the
	// last traces; then it says so.
	const attempts = 4
	var r *replica
	for attempt := range attempts {
		r = w.traced(s, append(slices.Clone(hurried), "OTEL_BSP_SCHEDULE_DELAY=600000")...)
		out := r.send("/credits", fmt.Sprint("key-of-out-", attempt), anna, "00-"+tillsTrace+"-"+tillsSpan+"-00")
		r.awaitEnd(out.member("id"))
		in := r.send("/debits", fmt.Sprint("key-of-in-", attempt), anna, "00-aaaabbbbccccddddaaaabbbbccccdddd-"+tillsSpan+"-01")
		if in.status != http.StatusCreated {
			t.Fatalf("%d %s", in.status, in.body)
		}
		r.signal(syscall.SIGTERM)
		r.awaitExit()
		if !strings.Contains(r.log.String(), "the last traces are lost") {
			break
		}
	}
	s.await(named("POST /debits", "aaaabbbbccccddddaaaabbbbccccdddd"))
	for _, span := range s.all() {
		if traceOf(span) == tillsTrace || strings.HasPrefix(span.GetName(), "attempt") {
			t.Errorf("sent all the same: %v", span)
		}
	}
	if r.waitErr != nil {
		t.Errorf("exit: %v", r.waitErr)
	}
}

// What a till says of its trace is decoration: nonsense in it costs no payment.
func TestAMalformedTraceparentIsIgnored(t *testing.T) {
	t.Parallel()
	w, s := newWorld(t), newSink(t)
	r := w.traced(s, quick...)
	for i, malformed := range []string{"", "00-xyz", "00-" + strings.Repeat("0", 32) + "-" + tillsSpan + "-01", "ff-" + tillsTrace + "-" + tillsSpan + "-01"} {
		if answer := r.send("/debits", fmt.Sprint("key-of-", i), anna, malformed); answer.status != http.StatusCreated {
			t.Fatalf("traceparent %q: %d %s", malformed, answer.status, answer.body)
		}
	}
	fresh := func() (n int) {
		for _, span := range s.all() {
			if span.GetName() == "POST /debits" && len(span.GetParentSpanId()) == 0 && traceOf(span) != tillsTrace {
				n++
			}
		}
		return n
	}
	s.await(func(*spans.Span) bool { return fresh() == 4 })
}

// A collector that takes connections and says nothing, or is not there, delays no
// payment and no end of the process.
func TestACollectorThatIsAwayCostsNothing(t *testing.T) {
	t.Parallel()
	silent, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	gone, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = gone.Close()
	for name, address := range map[string]string{"silent": silent.Addr().String(), "gone": gone.Addr().String()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			// A queue of ten spans, so that it is full at once.
			r := w.start(plain, append(quick, "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+address, "OTEL_BSP_SCHEDULE_DELAY=10",
				"OTEL_BSP_MAX_QUEUE_SIZE=10", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE=5")...)
			for i := range 50 {
				if answer := r.mustDebit(fmt.Sprint("key-of-", i), "ANNA"); answer.status != http.StatusCreated {
					t.Fatalf("%d %s", answer.status, answer.body)
				}
			}
			began := time.Now()
			r.signal(syscall.SIGTERM)
			r.awaitExit()
			if took := time.Since(began); r.waitErr != nil || took > 5400*time.Millisecond { // BUDGET_SERVER + 3 s, and no DRAIN_DELAY
				t.Errorf("ended after %v: %v", took, r.waitErr)
			}
		})
	}
}

// A release that is rolled out must not begin to send data about payments by itself.
func TestTracesAreOffUnlessAskedFor(t *testing.T) {
	t.Parallel()
	for name, env := range map[string][]string{
		"nothing is set": {"OTEL_SERVICE_NAME=payments", "OTEL_TRACES_SAMPLER=always_on"},
		"disabled":       {"OTEL_EXPORTER_OTLP_ENDPOINT=http://%s", "OTEL_SDK_DISABLED=true"},
		"no exporter":    {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://%s/v1/traces", "OTEL_TRACES_EXPORTER=none"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			connected := make(chan struct{})
			go func() {
				if c, err := l.Accept(); err == nil {
					_ = c.Close()
					close(connected)
				}
			}()
			t.Cleanup(func() { _ = l.Close() })
			w := newWorld(t)
			all := append(slices.Clone(quick), "OTEL_BSP_SCHEDULE_DELAY=10")
			for _, e := range env {
				if strings.Contains(e, "%s") {
					e = fmt.Sprintf(e, l.Addr())
				}
				all = append(all, e)
			}
			r := w.start(plain, all...)
			if answer := r.send("/debits", "key-of-off", anna, "00-"+tillsTrace+"-"+tillsSpan+"-01"); answer.status != http.StatusCreated {
				t.Fatalf("%d %s", answer.status, answer.body)
			}
			r.signal(syscall.SIGTERM) // what there is would be sent by now
			r.awaitExit()
			select {
			case <-connected:
				t.Error("the collector was called")
			default:
			}
			// The till's own trace is in the lines about its request all the same: its log and
			// ours can be laid beside each other. No line has a trace of our making.
			for line := range strings.Lines(r.log.String()) {
				if strings.Contains(line, "trace_id") && !strings.Contains(line, tillsTrace) {
					t.Errorf("the log names a trace that is not the till's: %s", line)
				}
			}
		})
	}
}

// A variable that asks for what we do not have would otherwise be found out on the day
// on which somebody needs the traces.
func TestAnUnknownTraceSettingStopsTheStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.launch(plain, "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318", "OTEL_TRACES_SAMPLER=sometimes")
	r.awaitExit()
	if code := r.cmd.ProcessState.ExitCode(); code != 2 || !strings.Contains(r.log.String(), `OTEL_TRACES_SAMPLER: "sometimes" is not one of`) {
		t.Errorf("exit %d:\n%s", code, r.log.String())
	}
}
