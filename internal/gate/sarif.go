package gate

import (
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

// The rules in SARIF.
const (
	ruleBlocking = "council/blocking"
	ruleAdvisory = "council/advisory"
)

type (
	dict     = map[string]any
	sequence = []any
)

// SARIF returns what a report shows as SARIF 2.1.0.
func SARIF(r Report) []byte {
	results := sequence{}
	for _, f := range r.Findings {
		if f.Shown {
			results = append(results, result(f))
		}
	}
	rule := func(id, text string) dict {
		return dict{"id": id, "shortDescription": dict{"text": text}}
	}
	text, _ := json.MarshalIndent(dict{
		"$schema": "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json",
		"version": "2.1.0",
		"runs": sequence{dict{
			"tool": dict{"driver": dict{
				"name": "councild gate", "informationUri": "https://github.com/councild/councild",
				"rules": sequence{
					rule(ruleBlocking, "Models of at least three makers call this defect blocking."),
					rule(ruleAdvisory, "More models of other makers confirm this defect than reject it."),
				},
			}},
			"invocations": sequence{dict{"executionSuccessful": r.Verdict != Undecided}},
			"results":     results,
			"properties":  dict{"verdict": r.Verdict, "reason": r.Reason},
		}},
	}, "", "  ") // texts can always be encoded
	return append(text, '\n')
}

// result returns a finding as a result of SARIF. Only findings that block are errors, because GitHub lets errors fail a
// check.
func result(f Finding) dict {
	rule, level := ruleAdvisory, "note"
	if f.Severity == Blocking {
		level = "warning"
	}
	if f.Blocks {
		rule, level = ruleBlocking, "error"
	}
	return dict{
		"ruleId": rule, "level": level, "message": dict{"text": inert(message(f))},
		"locations": sequence{dict{"physicalLocation": dict{
			"artifactLocation": dict{"uri": (&url.URL{Path: f.File}).String()},
			"region":           dict{"startLine": f.Start, "endLine": f.End},
		}}},
		"partialFingerprints": dict{"primaryLocationLineHash": f.Fingerprint},
	}
}

// message returns what a finding says, as plain text.
func message(f Finding) string {
	text := f.Wordings[0].What
	if scenario := f.Wordings[0].Scenario; scenario != "" {
		text += ": " + scenario
	}
	return fmt.Sprintf("%s (found by %s, confirmed by %d, rejected by %d)",
		text, strings.Join(f.FoundBy, ", "), len(f.ConfirmedBy), len(f.RejectedBy))
}

var activeText = regexp.MustCompile(`(\]\(|@[\pL\pN]|://|##\[|<[a-zA-Z/!?])`)

// inert breaks links, mentions and HTML in plain text with a blank.
func inert(text string) string {
	return activeText.ReplaceAllStringFunc(text, func(s string) string { return s[:1] + " " + s[1:] })
}

// maxAnnotations is how many annotations of one step GitHub shows.
const maxAnnotations = 10

// GitHub returns what a report shows as commands of GitHub's runners, which annotate the lines of the change.
func GitHub(r Report) []byte {
	var b strings.Builder
	n := 0
	for _, f := range r.Findings {
		if !f.Shown || n == maxAnnotations {
			continue
		}
		n++
		level := "notice"
		if f.Severity == Blocking {
			level = "warning"
		}
		if f.Blocks {
			level = "error"
		}
		property := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
		data := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
		fmt.Fprintf(&b, "::%s file=%s,line=%d,endLine=%d,title=councild gate::%s\n",
			level, property.Replace(noCommand(clean(f.File, maxPath))), f.Start, f.End, data.Replace(inert(message(f))))
	}
	return []byte(b.String())
}
