package walletsim_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"

	"github.com/safeledger/safeledger/internal/walletsim"
)

// The two documents in api/ are what the makers of a wallet are given. If the
// simulated wallet spoke otherwise, our tests would prove something about a
// wallet that nobody builds.
func TestTheWalletIsTheOneOfTheDocuments(t *testing.T) {
	t.Parallel()
	const prefix = "6f1c2f64-3b51-8c1a-9d6e-0c9f5c6f2a"
	n := 9
	next := func() string { n++; return fmt.Sprintf("%s%d", prefix, n) }
	for _, version := range []string{"v1", "v2"} {
		for _, cfg := range []walletsim.Config{{}, {EchoAmount: true, ForgetRejections: true}} {
			sim := start(t, cfg)
			sim.SetBalance("locked", "EUR", 1)
			sim.Lock("locked", true)
			document := documentOf(t, version)
			base := "/" + version
			call := func(method, path, body string, want int) string {
				t.Helper()
				return document.exchange(t, sim, method, base+path, body, want)
			}
			applied, refused := next(), next()
			call("POST", "/debits", move(applied, rich, 10), 201)
			call("POST", "/debits", move(applied, rich, 11), map[string]int{"v1": 409, "v2": 422}[version])
			call("POST", "/credits", move(next(), rich, 10), 201)
			call("POST", "/debits", move(refused, rich, richBalance+1), 409)
			call("POST", "/debits", move(next(), "nobody", 1), 404)
			call("POST", "/credits", move(next(), "locked", 1), 423)
			if version == "v1" {
				call("POST", "/credits", move(applied, rich, 10), 409)
				call("GET", "/debits?reference="+applied, "", 200)
				call("GET", "/debits?reference="+refused, "", 404)
				call("GET", "/credits?reference="+applied, "", 404)
				continue
			}
			call("GET", "/operations/"+applied, "", 200)
			call("GET", "/operations/"+refused, "", map[bool]int{false: 200, true: 404}[cfg.ForgetRejections])
			call("GET", "/operations/"+next(), "", 404)
			hold := answered{Body: call("POST", "/holds", move(next(), rich, 100), 201)}.member("id")
			call("POST", "/holds/"+hold+"/capture", fmt.Sprintf(`{"reference":%q,"amount":101}`, next()), 409)
			call("POST", "/holds/"+hold+"/capture", fmt.Sprintf(`{"reference":%q,"amount":99}`, next()), 200)
			call("POST", "/holds/"+hold+"/release", fmt.Sprintf(`{"reference":%q}`, next()), 409)
			call("POST", "/holds/none/release", fmt.Sprintf(`{"reference":%q}`, next()), 404)
			hold = answered{Body: call("POST", "/holds", move(next(), rich, 100), 201)}.member("id")
			call("POST", "/holds/"+hold+"/release", fmt.Sprintf(`{"reference":%q}`, next()), 200)

			pending := next()
			addRule(t, sim, walletsim.Rule{Fault: walletsim.Fault{Apply: walletsim.Pending}})
			call("POST", "/debits", move(pending, rich, 10), 202)
			call("GET", "/operations/"+pending, "", 200)
		}
	}
}

type document struct{ validator.Validator }

func documentOf(t *testing.T, version string) document {
	t.Helper()
	text, err := os.ReadFile("../../api/wallet-" + version + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := libopenapi.NewDocument(text)
	if err != nil {
		t.Fatal(err)
	}
	v, problems := validator.NewValidator(parsed)
	for _, problem := range problems {
		t.Fatal(problem)
	}
	if valid, problems := v.ValidateDocument(); !valid {
		for _, problem := range problems {
			t.Errorf("wallet-%s.yaml: %s", version, problem.Error())
		}
	}
	return document{v}
}

// exchange makes a request, and holds it and its answer against the document.
func (d document) exchange(t *testing.T, sim *walletsim.Sim, method, path, body string, want int) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, sim.URL()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
		if reference := (answered{Body: body}).member("reference"); strings.HasPrefix(path, "/v2/") {
			req.Header.Set("Idempotency-Key", reference)
		}
	} else {
		req.Body = http.NoBody
	}
	if valid, problems := d.ValidateHttpRequest(req); !valid {
		for _, problem := range problems {
			t.Errorf("%s %s: the request: %s", method, path, problem.Error())
		}
	}
	req.Body = io.NopCloser(strings.NewReader(body))
	res, err := callerOf(t, sim).client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != want {
		t.Errorf("%s %s: %d %s, want %d", method, path, res.StatusCode, text, want)
	}
	res.Body = io.NopCloser(bytes.NewReader(text))
	if valid, problems := d.ValidateHttpResponse(req, res); !valid {
		for _, problem := range problems {
			t.Errorf("%s %s: the answer %s: %s", method, path, text, problem.Error())
		}
	}
	return string(text)
}
