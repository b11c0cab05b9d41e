package main

import (
	"fmt"
	"math"
	"strings"
)

// The measures of the chart, in pixels.
const (
	chartWidth   = 860
	panelHeight  = 300
	marginLeft   = 64
	marginRight  = 16
	marginTop    = 56
	marginBottom = 34
)

// drawRates is the decisions a second as an SVG: a panel for each wallet, in it a
// group of bars for each number of tills, in that a bar for each variant. Its colours
// are read on light and on dark, and the text follows the reader's choice.
func drawRates(r *results) string {
	o := r.machine.Options
	var b strings.Builder
	height := panelHeight * len(o.Wallets)
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="system-ui, sans-serif" font-size="12">
<title>Decisions a second by the number of tills</title>
<style>
text { fill: #24292f } .faint { fill: #57606a } line { stroke: #57606a; stroke-opacity: .25 }
.v0 { fill: #0a69da } .v1 { fill: #e0862b } .v2 { fill: #4a9d5f } .v3 { fill: #8c959f }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .faint { fill: #9198a1 } line { stroke: #9198a1 } .v0 { fill: #4493f8 } }
</style>
`, chartWidth, height, chartWidth, height)
	for i, ms := range o.Wallets {
		fmt.Fprintf(&b, "<g transform=\"translate(0 %d)\">\n", i*panelHeight)
		drawPanel(&b, r, ms)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func drawPanel(b *strings.Builder, r *results, ms int) {
	o := r.machine.Options
	rateAt := func(tills int, variant string) spread {
		return r.figure(point{Phase: phaseRates, Variant: variant, Tills: tills, WalletMS: ms}, rate)
	}
	highest := 1.0
	for _, tills := range o.Tills {
		for _, variant := range o.Variants {
			highest = max(highest, rateAt(tills, variant).Median)
		}
	}
	grid := round(highest / 4)
	top := math.Ceil(highest/grid) * grid
	const base, room = panelHeight - marginBottom, panelHeight - marginBottom - marginTop
	y := func(v float64) float64 { return base - v/top*room }

	fmt.Fprintf(b, "<text x=\"%d\" y=\"20\" font-size=\"14\" font-weight=\"600\">decisions/s, wallet %d ms</text>\n", marginLeft, ms)
	for i, variant := range o.Variants {
		x := marginLeft + i*150
		fmt.Fprintf(b, "<rect x=\"%d\" y=\"30\" width=\"11\" height=\"11\" class=\"v%d\"/><text x=\"%d\" y=\"40\">%s</text>\n", x, i, x+16, variant)
	}
	for v := 0.0; v <= top; v += grid {
		fmt.Fprintf(b, "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\" class=\"faint\">%s</text>\n",
			marginLeft, chartWidth-marginRight, y(v), y(v), marginLeft-8, y(v)+4, thousands(int(v)))
	}
	group := float64(chartWidth-marginLeft-marginRight) / float64(len(o.Tills))
	width := group * 0.8 / float64(len(o.Variants))
	for i, tills := range o.Tills {
		left := marginLeft + (float64(i)+0.1)*group
		for j, variant := range o.Variants {
			got := rateAt(tills, variant)
			x := left + float64(j)*width
			fmt.Fprintf(b, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" class=\"v%d\"><title>%s, %s: %s/s</title></rect>\n",
				x, y(got.Median), width-3, base-y(got.Median), j, variant, count(tills, "till"), withRange(got))
			fmt.Fprintf(b, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\" font-size=\"10\">%s</text>\n", x+(width-3)/2, y(got.Median)-4, significant(got.Median))
		}
		fmt.Fprintf(b, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", left+group*0.4, base+20, count(tills, "till"))
	}
}

// round is the next number above v that people count in: 1, 2 or 5, and zeros.
func round(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, step := range []float64{1, 2, 5} {
		if v <= step*power {
			return step * power
		}
	}
	return 10 * power
}
