package telemetry

import (
	"io"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// scrapeLimit is how long a reading of the metrics may take: Prometheus gives
// up after 10 s by default.
const scrapeLimit = 10 * time.Second

// Admin serves operators, apart from the tills: /metrics of registry, /livez and
// /readyz, and nothing else (contract section 5). live and ready say what is
// wrong, nil if nothing is; they must answer at once. Their 503 carries no
// Retry-After: that has one author, the gate.
func Admin(registry prometheus.Gatherer, live, ready func() error) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		// One collector that fails must not hide what all the others say.
		ErrorHandling: promhttp.ContinueOnError,
		Timeout:       scrapeLimit,
	}))
	mux.Handle("GET /livez", check(live))
	mux.Handle("GET /readyz", check(ready))
	return mux
}

// check answers 200, or 503 and why, in plain text for a person with curl.
func check(ask func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		status, text := http.StatusOK, "ok"
		if err := ask(); err != nil {
			status, text = http.StatusServiceUnavailable, err.Error()
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text+"\n") // whoever asked may have left
	}
}
