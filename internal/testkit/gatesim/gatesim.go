// Package gatesim makes diffs with known defects, and clean diffs, for tests of the gate. Simulated models find the
// defects at the rates of their settings. The texts were written for this package.
//
// A diff has eight small functions in Go, Python or JavaScript. In a seeded diff, five of them have one defect each, and
// two of these defects are close together in one file. In a clean diff, all functions are right. Each function has one or
// two tempting places, where nothing is wrong.
package gatesim

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/councild/councild/internal/gate"
	"github.com/councild/councild/internal/simllm"
)

const (
	functions = 8  // in a diff
	defects   = 5  // in a seeded diff
	apart     = 10 // The first two defects of a seeded diff are at most this many lines apart.
)

// Planted returns what simulated models must know, as simllm.Options.Planted. Prompts do not reveal it. The argument
// tempting is the number of tempting places in each function, 1 or 2.
func Planted(tempting int) (planted []simllm.Planted) {
	for _, t := range templates() {
		planted = append(planted, simllm.Planted{
			Lines: strings.TrimSuffix(t.wrong, "\n"), Wordings: t.wordings[:], Scenario: t.scenario,
		})
		for _, place := range t.tempting[:tempting] {
			planted = append(planted, simllm.Planted{
				Lines: place.line, Wordings: place.wordings[:], Scenario: "an unusual input", Harmless: true,
			})
		}
	}
	return planted
}

// Seeded returns a diff with five defects. Equal seeds give equal diffs.
func Seeded(seed uint64) gate.Case {
	rng := draws(seed, 1)
	for {
		if c := diff(rng, defects); neighbours(c.Defects[0], c.Defects[1]) {
			c.Name = fmt.Sprintf("seeded-%03d", seed)
			return c
		}
	}
}

// Clean returns a diff without a defect. Equal seeds give equal diffs.
func Clean(seed uint64) gate.Case {
	c := diff(draws(seed, 2), 0)
	c.Name = fmt.Sprintf("clean-%03d", seed)
	return c
}

func draws(seed, kind uint64) *rand.Rand {
	return rand.New(rand.NewPCG(seed, kind)) //nolint:gosec // tests repeat it
}

func neighbours(a, b gate.Place) bool {
	return a.File == b.File && max(b.Start-a.End, a.Start-b.End) <= apart
}

// diff draws functions. The first of them, as many as wrong says, have their defect. The first two are in one file.
func diff(rng *rand.Rand, wrong int) gate.Case {
	all := templates()
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	second := 1 + slices.IndexFunc(all[1:], func(t template) bool { return path.Ext(t.file) == path.Ext(all[0].file) })
	all[1], all[second] = all[second], all[1]
	var c gate.Case
	var blocks []string
	for i := 1; i < functions; i++ {
		parts := all[i : i+1]
		if i == 1 {
			parts = all[:2]
		}
		blocks = append(blocks, hunk(&c, parts, max(wrong-i+len(parts)-1, 0), 10+rng.IntN(200)))
	}
	rng.Shuffle(len(blocks), func(i, j int) { blocks[i], blocks[j] = blocks[j], blocks[i] })
	c.Diff = strings.Join(blocks, "")
	return c
}

// hunk returns a diff that adds functions to a file. The argument wrong says how many of them have their defect, from
// the first.
func hunk(c *gate.Case, parts []template, wrong, start int) string {
	file := parts[0].file
	mark := map[string]string{".go": "//", ".py": "#", ".js": "//"}[path.Ext(file)]
	before := []string{mark + " This part is used by the handlers.", mark + " Its tests are in the next directory.", ""}
	after := []string{"", mark + " The rest of the file is older.", mark + " It is described in the handbook."}
	number := start + len(before)
	var added []string
	for i, t := range parts {
		code := t.code
		if i > 0 {
			added = append(added, "")
			number++
		}
		if i < wrong {
			code = strings.Replace(code, t.right, t.wrong, 1)
			c.Defects = append(c.Defects, at(file, code, t.wrong, number, t.wordings[:], t.scenario))
		}
		for _, place := range t.tempting {
			c.Tempting = append(c.Tempting, at(file, code, place.line, number, place.wordings[:], ""))
		}
		lines := strings.Split(code, "\n")
		added = append(added, lines...)
		number += len(lines)
	}
	removed := []string{mark + " It is not written yet."}
	var b strings.Builder
	fmt.Fprintf(&b, "diff --git a/%[1]s b/%[1]s\n--- a/%[1]s\n+++ b/%[1]s\n@@ -%[2]d,7 +%[2]d,%[3]d @@\n", file, start,
		len(before)+len(added)+len(after))
	for sign, lines := range [][]string{before, removed, added, after} {
		for _, line := range lines {
			b.WriteString(string(" -+ "[sign]) + line + "\n")
		}
	}
	return b.String()
}

// at returns the place of a quote from a function. The function begins at the line with this number.
func at(file, code, quote string, number int, wordings []string, scenario string) gate.Place {
	quote = strings.TrimSuffix(quote, "\n")
	i := strings.Index(code, quote)
	if i < 0 {
		panic("gatesim: " + file + " has no line " + strconv.Quote(quote))
	}
	start := number + strings.Count(code[:i], "\n")
	return gate.Place{
		File: file, Start: start, End: start + strings.Count(quote, "\n"), What: wordings[0],
		Quote: quote, Wordings: wordings, Scenario: scenario,
	}
}

// About returns a function that says which defect of a case a finding is about. Unlike [gate.Manifest.About], it looks
// at the wording that is shown. So it is right even if the quote misses the place.
func About(c gate.Case) func(gate.Finding) int {
	return func(f gate.Finding) int {
		return slices.IndexFunc(c.Defects, func(d gate.Place) bool {
			return len(f.Wordings) > 0 && slices.Contains(d.Wordings, f.Wordings[0].What)
		})
	}
}

// Write writes cases to a directory, in the form that [gate.ReadCases] reads.
func Write(dir string, cases []gate.Case) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, c := range cases {
		if err := os.WriteFile(filepath.Join(dir, c.Name+".diff"), []byte(c.Diff), 0o600); err != nil {
			return err
		}
		manifest, err := json.MarshalIndent(c.Manifest, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, c.Name+".json"), append(manifest, '\n'), 0o600); err != nil {
			return err
		}
	}
	return nil
}
