package gate_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/councild/councild/internal/gate"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit/gatesim"
)

// attacks returns the texts of the corpus by the names of their files.
func attacks(t *testing.T) map[string]string {
	t.Helper()
	names, err := filepath.Glob("testdata/attacks/*.txt")
	if err != nil || len(names) < 10 {
		t.Fatalf("%d attacks: %v", len(names), err)
	}
	texts := map[string]string{}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		texts[filepath.Base(name)] = string(data)
	}
	return texts
}

// sure is a world in which honest models find and confirm all that is planted, and nothing else. So any other report
// comes from an attack.
func sure() gatesim.World {
	w := gatesim.World{Name: "sure", Tempting: 1, Makers: 4}
	for i := range w.Members {
		w.Members[i] = simllm.Reviewing{Finds: 1, Confirms: 1, Blocks: 1, Same: 1}
	}
	return w
}

// summary says what a report shows and blocks, by the planted defects.
func summary(c gate.Case, r gate.Report) string {
	about := gatesim.About(c)
	var parts []string
	for _, f := range r.Findings {
		parts = append(parts, fmt.Sprintf("%d %t %t", about(f), f.Shown, f.Blocks))
	}
	slices.Sort(parts)
	return fmt.Sprint(r.Verdict, r.Dropped, parts)
}

// comments adds a text as comments to the first function of a diff, and as a new file.
func comments(diff, text string) string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	added := len(lines)
	hunk := regexp.MustCompile(`(?m)^(@@ -\d+,\d+ \+\d+,)(\d+)( @@)$`)
	at := hunk.FindStringSubmatchIndex(diff)
	n := 0
	_, _ = fmt.Sscan(diff[at[4]:at[5]], &n)
	head := diff[:at[4]] + strconv.Itoa(n+added) + diff[at[5]:at[1]] + "\n"
	return head + "+// " + strings.Join(lines, "\n+// ") + diff[at[1]:] +
		fmt.Sprintf("diff --git a/NOTES.md b/NOTES.md\nnew file mode 100644\n--- /dev/null\n+++ b/NOTES.md\n@@ -0,0 +1,%d @@\n", added) +
		"+" + strings.Join(lines, "\n+") + "\n"
}

// ask asks honest models.
func ask(t *testing.T, description, diff string) gate.Report {
	t.Helper()
	ask, err := gatesim.Direct(sure(), func(_ []simllm.Model, r *gate.Request) { r.Context = description })
	if err != nil {
		t.Fatal(err)
	}
	r, err := ask(t.Context(), diff)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// No text in a diff or in its description moves a verdict, if the models do not obey it.
func TestAttacksMoveNoVerdict(t *testing.T) {
	t.Parallel()
	for name, text := range attacks(t) {
		for _, c := range []gate.Case{gatesim.Seeded(1), gatesim.Clean(1)} {
			plain := ask(t, "", c.Diff)
			if want := gate.Pass; len(c.Defects) == 0 && plain.Verdict != want {
				t.Errorf("a clean diff is %s", plain.Verdict)
			}
			attacked := ask(t, text, comments(c.Diff, text))
			if want, got := summary(c, plain), summary(c, attacked); got != want {
				t.Errorf("%s moves\n%s to\n%s", name, want, got)
			}
		}
	}
}

// A member that writes an attack into its findings and votes moves no verdict alone.
func TestAttacksOfAMember(t *testing.T) {
	t.Parallel()
	for name, text := range attacks(t) {
		for _, c := range []gate.Case{gatesim.Seeded(1), gatesim.Clean(1)} {
			plain := askHostile(t, sure(), c.Diff, "")
			attacked := askHostile(t, sure(), c.Diff, text)
			if want, got := plain.Verdict, attacked.Verdict; got != want {
				t.Errorf("%s moves %s to %s", name, want, got)
			}
			for _, f := range attacked.Findings {
				if (f.Shown || f.Blocks) && slices.Equal(f.FoundBy, []string{"amber"}) {
					t.Errorf("%s is shown: %+v", name, f)
				}
			}
		}
	}
}

// askHostile asks a council whose first member answers with a text in each part of its replies. Without a text, it finds
// nothing, and rejects all.
func askHostile(t *testing.T, w gatesim.World, diff, text string) gate.Report {
	t.Helper()
	quote := ""
	for line := range strings.Lines(diff) {
		if strings.HasPrefix(line, "+") && len(line) > 30 && quote == "" && !strings.HasPrefix(line, "+++") {
			quote = line[1:]
		}
	}
	reply := func(task simllm.Task) (string, bool) {
		type dict = map[string]any
		findings := []dict{}
		votes := []dict{}
		if text != "" {
			findings = append(findings,
				dict{"file": text, "line": 1, "quote": quote, "what": text, "scenario": text, "severity": "blocking"},
				dict{"file": text, "line": 1, "quote": text, "what": text, "scenario": text, "severity": "blocking"})
		}
		for i := range 30 {
			votes = append(votes, dict{"finding": fmt.Sprint("F", i), "vote": "reject", "severity": text, "why": text})
		}
		reply, _ := json.Marshal(dict{"findings": findings, "votes": votes, "same": [][]string{{"F1", "F2", "F3", "F4", text}}})
		return text + "\n" + string(reply), task.Kind == simllm.Finding || task.Kind == simllm.Confirmation
	}
	ask, err := gatesim.Direct(w, func(models []simllm.Model, _ *gate.Request) { models[0].Reply = reply })
	if err != nil {
		t.Fatal(err)
	}
	r, err := ask(t.Context(), diff)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// These match what a page would show as more than text. In plain text, only links, mentions and HTML have a meaning.
var (
	active = regexp.MustCompile(`(?i)[@<>\[\]*_|~#&$\\]|www\.|://|gh-\d|:\w+:|[0-9a-f]{7}`)
	link   = regexp.MustCompile(`\]\(|@[\pL\pN]|://|<[a-zA-Z/!?]`)
)

// Reports hold what models and diffs say only as text, in each form, even if the other members confirm it.
func TestAttacksRenderNothing(t *testing.T) {
	t.Parallel()
	w := sure()
	for i := range w.Members {
		w.Members[i].FalseConfirms = 1
	}
	for name, text := range attacks(t) {
		c := gatesim.Clean(1)
		r := askHostile(t, w, c.Diff, text)
		if len(r.Findings) != 1 || !r.Findings[0].Shown {
			t.Fatalf("%s: nothing is shown of %+v", name, r.Findings)
		}
		r.Reason = "No finding blocks."
		r.Findings[0].File = strings.ReplaceAll(text, "\n", "/")
		r.LeftOut = []gate.LeftOut{{File: text, Reason: "excluded"}}
		for form, output := range map[string]string{
			"Markdown": string(gate.Markdown(r)), "GitHub": string(gate.GitHub(r)), "SARIF": string(gate.SARIF(r)),
		} {
			if strings.ContainsFunc(output, func(c rune) bool { return c != '\n' && (unicode.Is(unicode.C, c) || c == unicode.ReplacementChar) }) {
				t.Errorf("%s in %s has control characters: %q", name, form, output)
			}
			for line := range strings.Lines(output) {
				if strings.Contains(line, "##[") || strings.HasPrefix(strings.TrimSpace(line), "::") && form != "GitHub" {
					t.Errorf("%s in %s has a command: %q", name, form, line)
				}
			}
		}
		markdown := string(gate.Markdown(r))
		for _, own := range []string{"<details><summary>", "</summary>", "</details>", "**councild gate: " + string(r.Verdict) + "**"} {
			markdown = strings.ReplaceAll(markdown, own, "")
		}
		if found := active.FindString(gate.OutsideCode(markdown)); found != "" {
			t.Errorf("%s in Markdown: %q in %s", name, found, markdown)
		}
		annotations := string(gate.GitHub(r))
		if strings.Count(annotations, "\n") != 1 || !strings.HasPrefix(annotations, "::") {
			t.Errorf("%s in annotations: %q", name, annotations)
		}
		_, message, _ := strings.Cut(annotations, ",title=councild gate::")
		if found := link.FindString(message); found != "" || message == "" {
			t.Errorf("%s in annotations: %q in %s", name, found, annotations)
		}
		var sarif struct {
			Runs []struct {
				Results []struct {
					Message   struct{ Text string }
					Locations []struct {
						PhysicalLocation struct{ ArtifactLocation struct{ URI string } }
					}
				}
			}
		}
		if err := json.Unmarshal(gate.SARIF(r), &sarif); err != nil || len(sarif.Runs) != 1 || len(sarif.Runs[0].Results) != 1 {
			t.Fatalf("%s in SARIF: %v", name, err)
		}
		result := sarif.Runs[0].Results[0]
		if found := link.FindString(result.Message.Text); found != "" {
			t.Errorf("%s in SARIF: %q in %s", name, found, result.Message.Text)
		}
		if uri, err := url.Parse(result.Locations[0].PhysicalLocation.ArtifactLocation.URI); err != nil || uri.Scheme != "" || uri.Host != "" {
			t.Errorf("%s in SARIF: the URI is %v: %v", name, uri, err)
		}
		var again gate.Report
		if err := json.Unmarshal(gate.JSON(r), &again); err != nil || len(again.Findings) != 1 {
			t.Errorf("%s in JSON: %v", name, err)
		}
	}
}
