package api

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/safeledger/safeledger/internal/callers"
)

// visit is one request of a known caller.
type visit struct {
	arrived   time.Time // the moment that the budget counts from
	caller    string
	mayPayOut bool // credits that name neither a debit nor a hold
}

// authenticated lets only tills through to next (contract section 1, request
// headers).
func (a *api) authenticated(next func(http.ResponseWriter, *http.Request, visit)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		arrived := time.Now()
		token, presented := bearer(r.Header.Values("Authorization"))
		caller, known := callers.Caller{}, false
		if presented {
			caller, known = a.Callers.Authenticate(token)
		}
		if !known {
			ans := a.refuse(unauthenticated)
			ans.challenge = `Bearer realm="safeledger"`
			if presented {
				ans.challenge += `, error="invalid_token"`
			}
			a.write(w, ans)
			return
		}
		leave, ok := a.PerCaller.Enter(w, r, caller.Name)
		if !ok {
			return
		}
		defer leave()
		if !caller.Has(callers.Till) {
			a.write(w, a.refuseScope(callers.Till))
			return
		}
		a.begun(r, caller.Name)
		next(w, r, visit{arrived: arrived, caller: caller.Name, mayPayOut: caller.Has(callers.Payout)})
	}
}

// begun writes down, at debug, that a handler has been invoked: what a torture run
// holds against every 503 with Retry-After, which says that none was. It comes before
// anything that a process can die of.
func (a *api) begun(r *http.Request, caller string) {
	a.Log.LogAttrs(r.Context(), slog.LevelDebug, "request begun", slog.String("caller", caller))
}

// refuseScope is the answer for a caller who would need scope for what it asks.
func (a *api) refuseScope(scope callers.Scope) answer {
	ans := a.refuse(forbidden)
	ans.challenge = fmt.Sprintf(`Bearer realm="safeledger", error="insufficient_scope", scope="%s"`, scope)
	return ans
}

// bearer is the token of an Authorization field (RFC 6750 section 2.1). Two
// fields are none: somebody in between may have looked at the other one.
func bearer(lines []string) (token string, ok bool) {
	if len(lines) != 1 {
		return "", false
	}
	scheme, token, _ := strings.Cut(lines[0], " ")
	token = strings.TrimLeft(token, " ")
	return token, strings.EqualFold(scheme, "Bearer") && token != ""
}
