package gatesim

import (
	"slices"
	"strings"
	"testing"

	"github.com/councild/councild/internal/gate"
)

// Each template has its defect only in the wrong form, and its tempting places in both. No text is about two places.
func TestTemplates(t *testing.T) {
	t.Parallel()
	if n := len(templates()); n != 20 {
		t.Errorf("%d templates", n)
	}
	var texts []string
	for _, x := range templates() {
		bad := strings.Replace(x.code, x.right, x.wrong, 1)
		switch {
		case strings.Count(x.code, x.right) != 1 || strings.Contains(x.code, x.wrong) || strings.Count(bad, x.wrong) != 1:
			t.Errorf("%s: the defect is not one place", x.file)
		case strings.Contains(x.code, "`"):
			t.Errorf("%s holds a backtick", x.file)
		}
		texts = append(texts, x.wordings[:]...)
		for _, p := range x.tempting {
			texts = append(texts, p.wordings[:]...)
			if strings.Count(x.code, p.line) != 1 || strings.Count(bad, p.line) != 1 {
				t.Errorf("%s: %q is not in both forms", x.file, p.line)
			}
			if strings.Contains(x.wrong, p.line) && x.file != "stats/summary.py" {
				t.Errorf("%s: %q is tempting and wrong", x.file, p.line)
			}
		}
	}
	slices.Sort(texts)
	if len(slices.Compact(slices.Clone(texts))) != len(texts) {
		t.Error("two places have the same text")
	}
}

// Diffs depend only on their seed, their manifests name the right lines, and two defects are adjacent.
func TestDiffs(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for seed := range uint64(200) {
		seeded, clean := Seeded(seed), Clean(seed)
		if again := Seeded(seed); again.Diff != seeded.Diff {
			t.Fatalf("seed %d gives two diffs", seed)
		}
		if len(seeded.Defects) != defects || len(clean.Defects) != 0 || len(seeded.Tempting) != 2*functions ||
			len(clean.Tempting) != 2*functions {
			t.Fatalf("seed %d: %d and %d defects", seed, len(seeded.Defects), len(clean.Defects))
		}
		if !neighbours(seeded.Defects[0], seeded.Defects[1]) {
			t.Errorf("seed %d: no defects are adjacent", seed)
		}
		for _, c := range []gate.Case{seeded, clean} {
			if seen[c.Diff] {
				t.Errorf("seed %d: the diff is not new", seed)
			}
			seen[c.Diff] = true
			for _, p := range slices.Concat(c.Defects, c.Tempting) {
				if got := lines(c.Diff, p); got != p.Quote {
					t.Errorf("seed %d: %s:%d is %q and not %q", seed, p.File, p.Start, got, p.Quote)
				}
			}
			for _, x := range Planted(2) {
				if stands := strings.Contains(c.Diff, "+"+strings.ReplaceAll(x.Lines, "\n", "\n+")+"\n"); stands != slices.ContainsFunc(
					slices.Concat(c.Defects, c.Tempting), func(p gate.Place) bool { return p.Quote == x.Lines },
				) {
					t.Errorf("seed %d: %q stands in the diff, or in the manifest", seed, x.Lines)
				}
			}
		}
	}
}

// lines returns the lines of the new file at a place.
func lines(diff string, p gate.Place) string {
	_, file, _ := strings.Cut(diff, "+++ b/"+p.File+"\n")
	_, after, _ := strings.Cut(file, " +")
	number := 0
	head, _, _ := strings.Cut(after, ",")
	for _, digit := range head {
		number = 10*number + int(digit-'0')
	}
	var found []string
	for i, line := range strings.Split(file, "\n") {
		if i == 0 || strings.HasPrefix(line, "-") {
			continue
		}
		if number >= p.Start && number <= p.End {
			found = append(found, line[1:])
		}
		number++
	}
	return strings.Join(found, "\n")
}
