package main

import (
	"context"
	"encoding/csv"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// plot draws the CSV of growth as one SVG file for each unit of a group of curves.
func plot(_ context.Context, args []string) error {
	flags := flag.NewFlagSet("plot", flag.ContinueOnError)
	in := flags.String("in", "growth.csv", "output of bench growth")
	out := flags.String("out", ".", "directory of the files growth-GROUP.svg")
	if err := flags.Parse(args); err != nil {
		return err
	}
	f, err := os.Open(*in)
	if err != nil {
		return err
	}
	defer f.Close()
	r := csv.NewReader(f)
	r.Comment = '#'
	rows, err := r.ReadAll()
	if err != nil {
		return err
	}
	charts := map[string]*chart{}
	var names []string
	for _, row := range rows[1:] {
		group, curve, _ := strings.Cut(row[0], ": ")
		x, errX := strconv.ParseFloat(row[1], 64)
		y, errY := strconv.ParseFloat(row[2], 64)
		if errX != nil || errY != nil {
			return fmt.Errorf("no numbers in %v", row)
		}
		unit, _, _ := strings.Cut(row[3], ",")
		key := group + ", " + unit
		c := charts[key]
		if c == nil {
			c = &chart{x: group, y: unit, points: map[string][]point{}}
			charts[key], names = c, append(names, key)
		}
		if c.points[curve] == nil {
			c.curves = append(c.curves, curve)
		}
		c.points[curve] = append(c.points[curve], point{x, y})
	}
	for _, key := range names {
		name := strings.Map(func(r rune) rune {
			if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
				return r
			}
			return '-'
		}, strings.ToLower(strings.ReplaceAll(key, ", ", "-")))
		if err := os.WriteFile(filepath.Join(*out, "growth-"+name+".svg"), []byte(charts[key].svg()), 0o644); err != nil {
			return err
		}
	}
	return nil
}

type point struct{ x, y float64 }

// chart is a few curves over logarithmic axes.
type chart struct {
	x, y   string
	curves []string
	points map[string][]point
}

const (
	width, height            = 640.0, 360.0
	left, right, top, bottom = 70.0, 170.0, 30.0, 50.0
)

func (c *chart) svg() string {
	var all []point
	for _, points := range c.points {
		all = append(all, points...)
	}
	xs, ys := axis(all, func(p point) float64 { return p.x }), axis(all, func(p point) float64 { return p.y })
	px := func(x float64) float64 { return left + (width-left-right)*part(x, xs) }
	py := func(y float64) float64 { return height - bottom - (height-top-bottom)*part(y, ys) }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" font-family="sans-serif" font-size="12">
<style>text{fill:#1f2933}line{stroke:#d5d9de}path{fill:none;stroke:currentColor;stroke-width:2}circle,g text{fill:currentColor}
.value{font-size:10px}.c0{color:#0f766e}.c1{color:#b45309}.c2{color:#4f46e5}.c3{color:#be185d}
@media(prefers-color-scheme:dark){text{fill:#e4e7eb}line{stroke:#3e4c59}
.c0{color:#2dd4bf}.c1{color:#fbbf24}.c2{color:#a5b4fc}.c3{color:#f9a8d4}}</style>
<title>%s over %s</title>
`, width, height, c.y, c.x)
	for x := xs[0]; x <= xs[1]*1.001; x *= 10 {
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%g" x2="%.1f" y2="%g"/><text x="%.1f" y="%g" text-anchor="middle">%s</text>`+"\n",
			px(x), top, px(x), height-bottom, px(x), height-bottom+18, tick(x))
	}
	for y := ys[0]; y <= ys[1]*1.001; y *= 10 {
		fmt.Fprintf(&b, `<line x1="%g" y1="%.1f" x2="%g" y2="%.1f"/><text x="%g" y="%.1f" text-anchor="end">%s</text>`+"\n",
			left, py(y), width-right, py(y), left-8, py(y)+4, tick(y))
	}
	fmt.Fprintf(&b, `<text x="%g" y="%g" text-anchor="middle">%s</text><text x="%g" y="18">%s</text>`+"\n",
		(left+width-right)/2, height-8, c.x, left, c.y)
	ends := make([]float64, 0, len(c.curves)) // so that labels do not cover each other
	for i, name := range c.curves {
		var d strings.Builder
		fmt.Fprintf(&b, "<g class=\"c%d\">\n", i%4)
		for n, p := range c.points[name] {
			fmt.Fprintf(&d, "%c%.1f %.1f", "ML"[min(n, 1)], px(p.x), py(p.y))
			above := -7.0
			// The values of every second curve are below its points.
			if i%2 == 1 {
				above = 16
			}
			fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="3"/><text class="value" x="%.1f" y="%.1f" text-anchor="middle">%s</text>`+"\n",
				px(p.x), py(p.y), px(p.x), py(p.y)+above, short(p.y))
		}
		last := c.points[name][len(c.points[name])-1]
		at := py(last.y) + 4
		for slices.ContainsFunc(ends, func(other float64) bool { return math.Abs(other-at) < 14 }) {
			at += 14
		}
		ends = append(ends, at)
		fmt.Fprintf(&b, `<path d="%s"/><text x="%.1f" y="%.1f">%s</text></g>`+"\n", d.String(), px(last.x)+16, at, name)
	}
	return b.String() + "</svg>\n"
}

// axis returns the powers of ten around the values.
func axis(points []point, of func(point) float64) [2]float64 {
	low, high := math.Inf(1), math.Inf(-1)
	for _, p := range points {
		low, high = min(low, of(p)), max(high, of(p))
	}
	low, high = max(low, 1e-3), max(high, 1e-3)
	a, z := math.Floor(math.Log10(low)), math.Ceil(math.Log10(high))
	return [2]float64{math.Pow(10, a), math.Pow(10, max(z, a+1))}
}

// part returns where v lies on an axis, from 0 to 1.
func part(v float64, axis [2]float64) float64 {
	return math.Log10(max(v, axis[0])/axis[0]) / math.Log10(axis[1]/axis[0])
}

func tick(v float64) string {
	if v >= 1e6 {
		return strconv.FormatFloat(v/1e6, 'f', -1, 64) + "M"
	}
	if v >= 1000 {
		return strconv.FormatFloat(v/1000, 'f', -1, 64) + "k"
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}
