package rules_test

import (
	"os"
	"strings"
	"testing"

	"github.com/safeledger/safeledger/internal/documenttest"
)

//go:generate go test . -run TestPrometheusRuleIsTheRules -update

// Where the Prometheus operator runs, the same rules are an object of the cluster.
func TestPrometheusRuleIsTheRules(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("../../deploy/prometheus/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString(`# Written by go generate ./test/rules from rules.yaml, which is what to change.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: safeledger
  labels:
    app.kubernetes.io/name: safeledger
spec:
`)
	_, groups, found := strings.Cut(string(content), "\ngroups:\n")
	if !found {
		t.Fatal("no groups in rules.yaml")
	}
	for line := range strings.Lines("groups:\n" + groups) {
		if line != "\n" {
			line = "  " + line
		}
		b.WriteString(line)
	}
	documenttest.CheckFile(t, "../../deploy/prometheus/prometheusrule.yaml", b.String())
}
