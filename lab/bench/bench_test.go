package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/councild/councild/internal/testkit"
)

// The daemon and the references run sessions against the provider, plain and streamed, none
// of which fails.
func TestQuick(t *testing.T) {
	testkit.Slow(t)
	w, err := newWorkplace(t.Context(), "../..")
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	b := &bencher{workplace: w, root: "../..", rounds: 1, quick: true}
	for _, of := range []func(context.Context) measurement{b.open, b.capacity, b.connections, b.chunks, b.page} {
		m := of(t.Context())
		if err := m.part(); err != nil {
			t.Fatal(err)
		}
		m.figures()
	}
	b.print(t.Output())
	if len(b.Figures) != 13 {
		t.Errorf("%d figures", len(b.Figures))
	}
}

// TestMain lets the processes that are measured be this program.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-") {
		main()
		return
	}
	os.Exit(m.Run())
}

// A session that is degraded makes a figure invalid: the reviews here hold an empty ballot.
func TestInvalid(t *testing.T) {
	testkit.Slow(t)
	w, err := newWorkplace(t.Context(), "../..")
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	a, err := w.arena(t.Context(), 4, []string{"-members", "1", "-dwell", "1ms"})
	if err != nil {
		t.Fatal(err)
	}
	defer a.stop()
	o, err := whole(a.load(t.Context(), plan{Clients: 1, Sessions: 1}))
	if err == nil || !strings.Contains(err.Error(), "is not complete") {
		t.Errorf("a session without ballots counts, or failed otherwise: %+v, %v", o, err)
	}
}

func TestPlot(t *testing.T) {
	dir := t.TempDir()
	in := filepath.Join(dir, "growth.csv")
	text := "# machine\ncurve,x,y,unit\nclients: CPU,1,3000,us a session\nclients: CPU,8,2500,us a session\n" +
		"clients: CPU of R1,1,1500,us a session\nclients: CPU of R1,8,1500,us a session\n"
	if err := os.WriteFile(in, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := plot(t.Context(), []string{"-in", in, "-out", dir}); err != nil {
		t.Fatal(err)
	}
	svg, err := os.ReadFile(filepath.Join(dir, "growth-clients-us-a-session.svg"))
	if err != nil || strings.Count(string(svg), "<circle") != 4 || strings.Count(string(svg), "<path") != 2 ||
		!strings.Contains(string(svg), ">2500</text>") {
		t.Errorf("%v: %s", err, svg)
	}
}

// The records that are multiplied are sessions of their own, the newest last.
func TestMultiply(t *testing.T) {
	dir := t.TempDir()
	source, target := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	line := `{"session_id":"01a2076b-0511-71ce-9402-407c44accb8b","timestamp":"2026-11-23T07:59:43Z","x":1}` + "\t\n"
	if err := os.WriteFile(source, []byte(strings.Repeat(line, 12)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := multiply(source, target, 24); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(target)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(got)), "\n")
	if len(lines) != 24 || !strings.Contains(lines[0], `"00000001-0511-`) || !strings.Contains(lines[0], "2026-11-22T") ||
		!strings.Contains(lines[23], `"00000000-0511-`) || !strings.Contains(lines[23], "2026-11-23T") {
		t.Errorf("%d lines, from %s to %s", len(lines), lines[0], lines[len(lines)-1])
	}
}

// The sums of ranks that a two-sided signed-rank test rejects at 5 % are at most 0 of 6 values, 5 of 9, 40 of 18 and 107 of 27, by the
// usual tables (Wilcoxon and Wilcox 1964): the interval runs from the next average of a pair.
func TestInterval(t *testing.T) {
	for _, tc := range []struct{ n, rejected int }{{6, 0}, {7, 2}, {8, 3}, {9, 5}, {18, 40}, {27, 107}} {
		var s series
		for i := range tc.n {
			s = append(s, float64(int(1)<<i)) // no two pairs have the same average
		}
		low, high := s.interval()
		if w := s.walsh(); low != w[tc.rejected] || high != w[len(w)-1-tc.rejected] {
			t.Errorf("of %d values: averages %d to %d, want %d to %d",
				tc.n, slices.Index(w, low), slices.Index(w, high), tc.rejected, len(w)-1-tc.rejected)
		}
	}
	for _, few := range []series{{1}, {3, 1, 2}, {5, 1, 4, 2, 3}} {
		if low, high := few.interval(); low != 1 || high != float64(len(few)) {
			t.Errorf("of %d values: %v to %v", len(few), low, high)
		}
	}
}

func TestSeries(t *testing.T) {
	// The averages of pairs are 1, 1.5, 2, 2, 2.5, 3, 5.5, 6, 6.5, 10.
	if got := (series{10, 1, 3, 2}).pseudomedian(); got != 2.75 {
		t.Errorf("pseudomedian %v", got)
	}
	if got := (series{4, 6}).less(series{1, 2}).over(series{1, 2}); !slices.Equal(got, series{3, 2}) {
		t.Errorf("ratios of differences: %v", got)
	}
}

// One seed has the same arrivals each time. Their number differs between seeds as in a Poisson process: its variance is its mean.
func TestArrivals(t *testing.T) {
	begun := func(seed int) int {
		p := plan{Rate: 2000, During: 100 * time.Millisecond, Seed: seed}
		o := p.perform(t.Context(), func(context.Context) error { return nil })
		return o.Sessions
	}
	var squares float64
	for seed := range 10 {
		n := begun(seed)
		squares += float64((n - 200) * (n - 200))
		if again := begun(seed); again != n {
			t.Errorf("seed %d: %d sessions, then %d", seed, n, again)
		}
	}
	// Of chi-squared with ten degrees of freedom, 1.5 and 29.6 leave 0.1 % on either side.
	if squares/200 < 1.5 || squares/200 > 29.6 {
		t.Errorf("squared deviations are %v of the mean in all", squares/200)
	}
}

func TestTurns(t *testing.T) {
	var order string
	note := func(name string) func() error {
		return func() error {
			order += name
			return nil
		}
	}
	for round := range 3 {
		if err := turns(round, note("a"), note("b"), note("c")); err != nil {
			t.Fatal(err)
		}
	}
	if order != "abccbaabc" {
		t.Errorf("order %s", order)
	}
}

// What a test prints of its reason comes behind what go test has downloaded.
func TestOneLine(t *testing.T) {
	err := errors.New("exit status 1\n" + strings.Repeat("go: downloading é\n", 100) + "no | browser")
	got := oneLine(err)
	if len(got) > 310 || !utf8.ValidString(got) || !strings.HasPrefix(got, "exit status 1 go:") || !strings.HasSuffix(got, "no / browser") {
		t.Errorf("%d bytes: %s", len(got), got)
	}
}

// Two results are compared figure by figure, and what depends on the machine is not judged.
func TestAgainst(t *testing.T) {
	older := result{Machine: "old", Figures: []figure{
		{Name: "T1", What: "a", Values: series{1.2, 1.0, 1.1}},
		{Name: "T2", What: "b", Values: series{1}},
		{Name: "T3", What: "c", Values: series{2}, Local: true},
		{Name: "T7", What: "d", Values: series{0}},
		{Name: "T8", What: "gone", Values: series{1}},
	}}
	newer := result{Machine: "new", Figures: []figure{
		{Name: "T1", What: "a", Values: series{1.2}},
		{Name: "T2", What: "b", Values: series{0.9}}, // 1 / 0.9 is more than 1.1
		{Name: "T3", What: "c", Values: series{3}, Local: true},
		{Name: "T7", What: "d", Values: series{0}},
		{Name: "T9", What: "invalid", Problem: "it failed"},
	}}
	var out strings.Builder
	beside(&out, older, newer)
	for _, want := range []string{
		"| T1 | a | 1.1 (1 to 1.2) | 1.2 | 1.09 | yes |", "| T2 | b | 1 | 0.9 | 0.9 | **no** |",
		"| T3 | c | 2 | 3 | 1.5 | depends on the machine |", "| T7 | d | 0 | 0 | 1 | yes |", "| T9 | invalid | | | only one run has it | |",
		"2 of 3 ratios agree within 10 %.",
	} {
		if !strings.Contains(out.String(), want+"\n") {
			t.Errorf("%q is missing in\n%s", want, &out)
		}
	}
}

// A binary is slower where the whole interval of its ratio is above what is tolerated.
func TestPairedSlower(t *testing.T) {
	old := series{100, 101, 99, 100, 102, 98, 100, 101}
	times := func(factor float64) (all series) {
		for _, v := range old {
			all = append(all, factor*v)
		}
		return all
	}
	uneven := series{100, 150, 80, 120, 90, 160, 100, 140}
	for name, tt := range map[string]struct {
		values series
		want   bool
	}{"the same": {old, false}, "a little slower": {times(1.04), false}, "slower": {times(1.07), true}, "uneven": {uneven, false}} {
		p := paired{old: old, new: tt.values}
		if got := p.slower(); got != tt.want {
			t.Errorf("%s: slower is %v", name, got)
		}
	}
}
