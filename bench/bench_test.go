package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The daemon and the references run sessions against the provider, plain and streamed, none
// of which fails.
func TestQuick(t *testing.T) {
	w, err := newWorkplace(t.Context(), "..")
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	b := &bencher{workplace: w, root: "..", rounds: 1, quick: true}
	for _, measure := range []func(context.Context) error{b.sessions, b.open, b.capacity, b.connections, b.chunks, b.page} {
		if err := measure(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range b.rows {
		t.Logf("%s: %s, floors %s", row.name, row.measured, row.floors)
	}
	if len(b.rows) != 8 {
		t.Errorf("%d figures", len(b.rows))
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
	w, err := newWorkplace(t.Context(), "..")
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	p, err := w.provider(t.Context(), "-members", "1", "-dwell", "1ms")
	if err != nil {
		t.Fatal(err)
	}
	defer p.stop()
	d, _, err := w.daemon(t.Context(), p, 4)
	if err != nil {
		t.Fatal(err)
	}
	defer d.stop()
	o, err := whole(w.perform(t.Context(), "load", "-url", d.url, "-sessions", "1"))
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
