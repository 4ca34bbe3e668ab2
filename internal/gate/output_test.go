package gate

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/councild/councild/internal/council"
)

// example is a report with something of everything. The second finding is hostile.
func example(t *testing.T) Report {
	t.Helper()
	s := script{
		request: Request{Diff: refund + "diff --git a/go.sum b/go.sum\n--- a/go.sum\n+++ b/go.sum\n" + hunk},
		seats:   members("gpt mini skeptic kimi"),
		finds: map[string][]said{
			"gpt":  {blocking(deletes, "an unknown id deletes another record"), advisory(subtracts, hostile), advisory("nowhere in the diff", "x"), advisory("unlock(refunds)", "the lock is held too long")},
			"mini": {{File: "pay/refund.go", Quote: deletes, What: "the wrong record vanishes", Scenario: "DELETE with an unknown id", Severity: Blocking}},
		},
		votes: map[string]map[string]string{
			"mini": {"hello": "confirm advisory", "unlock": "reject"}, "skeptic": {"": "confirm blocking"},
		},
		fail2: map[string]council.FailureCode{"kimi": council.FailTimeout},
	}
	r := s.play(t)
	cost := 0.1149
	r.Usage.CostUSD = &cost
	return r
}

const hostile = "hello @admin <img src=x onerror=alert(1)> [link](https://evil.example) ![i](//evil.example/x.png) www.evil.example " +
	"#12 GH-7 a/b#3 0123456789abcdef ``` `x` :tada: ##[error]x ::set-output name=a::b &#64;all </details> *b* _i_ | %0A::error::"

func TestMarkdown(t *testing.T) {
	got := Markdown(example(t))
	golden := filepath.Join("testdata", "report.md.golden")
	if *update {
		if err := os.WriteFile(golden, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%v, got:\n%s", err, got)
	}
	r := Report{Verdict: Pass, Reason: "No finding blocks.", Makers: 2, Usage: &council.Usage{CostUSD: new(0.0045)}}
	if text := string(Markdown(r)); !strings.HasPrefix(text, "**councild gate: pass** · no findings · 2 makers · $0.0045\n") {
		t.Errorf("without findings: %s", text)
	}
}

// outsideCode returns the parts of Markdown that are not code.
func outsideCode(text string) string {
	var b strings.Builder
	for text != "" {
		before, rest, _ := strings.Cut(text, "`")
		b.WriteString(before)
		if rest == "" {
			break
		}
		rest = "`" + rest
		fence := rest[:len(rest)-len(strings.TrimLeft(rest, "`"))]
		_, text, _ = cutFence(rest[len(fence):], fence)
	}
	return b.String()
}

// cutFence cuts a text at a run of backticks that is exactly a fence.
func cutFence(text, fence string) (code, rest string, ok bool) {
	for at := 0; at < len(text); {
		i := strings.Index(text[at:], "`")
		if i < 0 {
			break
		}
		from := at + i
		run := text[from : len(text)-len(strings.TrimLeft(text[from:], "`"))]
		if run == fence {
			return text[:from], text[from+len(run):], true
		}
		at = from + len(run)
	}
	return text, "", false
}

// What models write can make no link, image, mention, reference, HTML or list in Markdown, and stays on its line.
func TestMarkdownIsInert(t *testing.T) {
	active := regexp.MustCompile(`(?i)[@<>\[\]*_|~#&$\\]|www\.|://|gh-\d|:\w+:|[0-9a-f]{7}`)
	texts := []string{hostile, "a\n# head\n- item", "`", "``", "x ` y `` z ``` @a", "@a", "<b>", "1. x", "- x", "---", "=== x", "a@b.example", "javascript://x", "\\@a", "\u200b@a", "mailto:a@b.c", "user/repo@abc"}
	for _, text := range texts {
		shown := prose(clean(text, maxWhat))
		if found := active.FindString(outsideCode(shown)); found != "" || strings.Contains(shown, "\n") {
			t.Errorf("%q is shown as %q, with %q", text, shown, found)
		}
	}
	r := example(t)
	r.Findings[0].File = "a`b\n@admin.go"
	r.LeftOut = append(r.LeftOut, LeftOut{File: "<script>`", Reason: leftBinary})
	r.Findings[0].FoundBy = []string{"@admin", "<b>"}
	text := string(Markdown(r))
	for _, own := range []string{"<details><summary>", "</summary>", "</details>", "**blocks**", "**councild gate: blocked**"} {
		text = strings.ReplaceAll(text, own, "")
	}
	text = regexp.MustCompile(`\$\d+\.\d\d`).ReplaceAllString(text, "")
	if found := active.FindString(outsideCode(text)); found != "" {
		t.Errorf("%q in %s", found, outsideCode(text))
	}
}

// SARIF validates against the schema of OASIS.
func TestSARIF(t *testing.T) {
	schema := sarifSchema(t)
	r := example(t)
	r.Findings[1].File = "dir with blanks/c:x%y#z?.go"
	empty := Report{Verdict: Pass}
	colon := example(t)
	colon.Findings[0].File = "c:x.go"
	for name, r := range map[string]Report{"findings": r, "nothing": empty, "a colon": colon} {
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(SARIF(r)))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(value); err != nil {
			t.Errorf("%s: %v\n%s", name, err, SARIF(r))
		}
	}
	wrong, err := jsonschema.UnmarshalJSON(strings.NewReader(strings.Replace(string(SARIF(r)), `"error"`, `"fatal"`, 1)))
	if err != nil || schema.Validate(wrong) == nil {
		t.Errorf("a level that does not exist is valid, %v", err)
	}
	var read struct {
		Runs []struct {
			Results []struct {
				RuleID, Level string
				Message       struct{ Text string }
				Locations     []struct {
					PhysicalLocation struct {
						ArtifactLocation struct{ URI string }
						Region           struct{ StartLine, EndLine int }
					}
				}
				PartialFingerprints map[string]string
			}
		}
	}
	if err := json.Unmarshal(SARIF(r), &read); err != nil {
		t.Fatal(err)
	}
	results := read.Runs[0].Results
	if len(results) != 2 {
		t.Fatalf("%d results", len(results))
	}
	first, second := results[0], results[1]
	if first.RuleID != "council/blocking" || first.Level != "error" || first.Locations[0].PhysicalLocation.Region.StartLine != 50 ||
		first.PartialFingerprints["primaryLocationLineHash"] != r.Findings[0].Fingerprint {
		t.Errorf("%+v", first)
	}
	if second.Level != "note" || second.Locations[0].PhysicalLocation.ArtifactLocation.URI != "dir%20with%20blanks/c:x%25y%23z%3F.go" {
		t.Errorf("%+v", second)
	}
	if regexp.MustCompile(`\]\(|@admin|://|<img`).MatchString(second.Message.Text) {
		t.Errorf("%s", second.Message.Text)
	}
}

func sarifSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "sarif-schema-2.1.0.json"))
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	const location = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
	if err := c.AddResource(location, value); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile(location)
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

func TestGitHub(t *testing.T) {
	r := example(t)
	r.Findings[0].File = "a,b:c%\nd.go"
	got := strings.Split(strings.TrimSuffix(string(GitHub(r)), "\n"), "\n")
	if len(got) != 2 || got[0] != "::error file=a%2Cb%3Ac%25 d.go,line=50,endLine=50,title=councild gate::"+
		"an unknown id deletes another record (found by gpt, mini, confirmed by 1, rejected by 0)" {
		t.Errorf("%q", got)
	}
	if !strings.HasPrefix(got[1], "::notice ") || strings.Contains(got[1], "##[") || strings.Contains(got[1], " %0A") || strings.Contains(got[1], "@admin") {
		t.Errorf("%q", got[1])
	}
	for len(r.Findings) < 30 {
		r.Findings = append(r.Findings, r.Findings[0])
	}
	if n := strings.Count(string(GitHub(r)), "\n"); n != 10 {
		t.Errorf("%d annotations", n)
	}
}

func TestJSON(t *testing.T) {
	r := example(t)
	var back Report
	if err := json.Unmarshal(JSON(r), &back); err != nil || asJSON(t, back) != asJSON(t, r) {
		t.Errorf("%v: %s", err, JSON(r))
	}
	if text := string(JSON(r)); strings.Contains(text, "null,\n  \"dropped\"") || strings.Contains(text, `"findings": null`) {
		t.Error(text)
	}
}
