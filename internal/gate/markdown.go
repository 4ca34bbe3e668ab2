package gate

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// JSON returns a report as indented JSON.
func JSON(r Report) []byte {
	text, _ := json.MarshalIndent(r, "", "  ") // a report can always be encoded
	return append(text, '\n')
}

// Markdown returns a report for people, as a comment on a change shows it. Texts of models and of the change cannot
// make links, images, mentions, references or HTML.
func Markdown(r Report) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "**councild gate: %s** · %s\n", r.Verdict, strings.Join(figures(r), " · "))
	if r.Verdict != Blocked {
		b.WriteString("\n" + prose(r.Reason) + "\n")
	}
	var shown, rest []Finding
	for _, f := range r.Findings {
		if f.Shown {
			shown = append(shown, f)
		} else {
			rest = append(rest, f)
		}
	}
	if len(shown) > 0 {
		b.WriteString("\n")
	}
	for _, f := range shown {
		b.WriteString(item(f))
	}
	if len(rest) > 0 {
		fmt.Fprintf(&b, "\n<details><summary>%s not shown above</summary>\n\n", counted(len(rest), "finding"))
		for _, f := range rest {
			b.WriteString(item(f))
		}
		b.WriteString("\n</details>\n")
	}
	for _, note := range notes(r) {
		b.WriteString("\n" + note + "\n")
	}
	return []byte(b.String())
}

// figures returns what follows the verdict in the first line.
func figures(r Report) []string {
	var blocks, shown, unconfirmed int
	for _, f := range r.Findings {
		switch {
		case f.Blocks:
			blocks++
		case f.Shown:
			shown++
		case !f.Confirmed:
			unconfirmed++
		}
	}
	counts := "no findings"
	if len(r.Findings) > 0 {
		counts = fmt.Sprintf("%d blocking, %d to consider, %d not confirmed", blocks, shown, unconfirmed)
	}
	parts := []string{counts, counted(r.Makers, "maker")}
	if r.Usage != nil && r.Usage.CostUSD != nil {
		format := "$%.2f"
		if *r.Usage.CostUSD < 0.1 {
			format = "$%.2g"
		}
		parts = append(parts, fmt.Sprintf(format, *r.Usage.CostUSD))
	}
	return parts
}

// item returns a finding as an item of a list.
func item(f Finding) string {
	var b strings.Builder
	b.WriteString("- ")
	if f.Blocks {
		b.WriteString("**blocks** ")
	}
	fmt.Fprintf(&b, "%s %s", code(fmt.Sprintf("%s:%d", clean(f.File, maxPath), f.Start)), prose(f.Wordings[0].What))
	if scenario := f.Wordings[0].Scenario; scenario != "" {
		b.WriteString(": " + prose(scenario))
	}
	b.WriteString("\n  " + positions(f) + "\n")
	return b.String()
}

// positions says who stands where.
func positions(f Finding) string {
	var parts []string
	switch {
	case f.Ignored != "":
		parts = append(parts, "accepted: "+prose(f.Ignored))
	case !f.Confirmed:
		parts = append(parts, "not confirmed")
	case !f.Shown:
		parts = append(parts, "confirmed, but beyond the limit of findings")
	}
	parts = append(parts, "found by "+names(f.FoundBy))
	if len(f.ConfirmedBy) > 0 {
		parts = append(parts, "confirmed by "+names(f.ConfirmedBy))
	}
	if len(f.RejectedBy) > 0 {
		parts = append(parts, "rejected by "+names(f.RejectedBy))
	}
	return strings.Join(append(parts, "fingerprint "+code(f.Fingerprint)), "; ")
}

func names(seats []string) string {
	names := make([]string, len(seats))
	for i, seat := range seats {
		names[i] = prose(seat)
	}
	return strings.Join(names, ", ")
}

// maxNamed is how many of the files that were not reviewed are named.
const maxNamed = 20

// notes says what was left out, dropped and missed.
func notes(r Report) (notes []string) {
	if len(r.LeftOut) > 0 {
		var files []string
		for _, l := range r.LeftOut[:min(len(r.LeftOut), maxNamed)] {
			files = append(files, code(clean(l.File, maxPath))+" ("+l.Reason+")")
		}
		if more := len(r.LeftOut) - maxNamed; more > 0 {
			files = append(files, counted(more, "other file"))
		}
		notes = append(notes, "Not reviewed: "+strings.Join(files, ", ")+".")
	}
	reasons := map[string]string{
		droppedQuote: "whose quote does not stand in the diff", droppedForm: "that could not be read",
		droppedLimit: "beyond the number that a member may report",
	}
	for _, why := range slices.Sorted(maps.Keys(r.Dropped)) {
		notes = append(notes, fmt.Sprintf("Not used: %s %s.", counted(r.Dropped[why], "finding"), reasons[why]))
	}
	for _, m := range r.Members {
		if m.Error != nil {
			notes = append(notes, fmt.Sprintf("No reply of %s: %s.", prose(m.ID), m.Error.Code))
		}
	}
	return notes
}

// code returns a text of one line as code, where Markdown has no effect.
func code(text string) string {
	fence := "`"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	if len(fence) > 1 {
		text = " " + text + " "
	}
	return fence + noCommand(text) + fence
}

// plainWord matches words that mean nothing in Markdown. specialWord matches those of them that GitHub turns into
// links, such as www.example.com, GH-1 and the hashes of commits.
var (
	plainWord   = regexp.MustCompile(`^[\pL\pM\pN.,;:!?'"()/-]*$`)
	specialWord = regexp.MustCompile(`(?i)www\.|://|:.*:|[a-z]-\d|[0-9a-f]{7}|^\d*[-.)]+$`)
)

// prose returns a text of one line with its special words as code.
func prose(text string) string {
	var out, special []string
	flush := func() {
		if special != nil {
			out = append(out, code(strings.Join(special, " ")))
			special = nil
		}
	}
	for word := range strings.FieldsSeq(text) {
		if plainWord.MatchString(word) && !specialWord.MatchString(word) {
			flush()
			out = append(out, word)
		} else {
			special = append(special, word)
		}
	}
	flush()
	return strings.Join(out, " ")
}

// noCommand breaks "##[", which GitHub's runners read as a command anywhere in a line of output.
func noCommand(text string) string { return strings.ReplaceAll(text, "##[", "# #[") }
