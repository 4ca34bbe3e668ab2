package trial

import (
	"cmp"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/render"
	"github.com/councild/councild/internal/worth"
)

// roster returns the line of the roster to which a comparison leads. If the council pays, the line serves the council.
// If it does not pay, the line serves the cheapest arm that has a line and is in worth.Report.Short. The result has no
// line in all other cases.
func (p Plan) roster(report worth.Report, form *council.AnswerForm, results []Result) (r render.Roster) {
	arms := report.Short
	if report.Verdict == worth.Pays {
		arms = []string{ArmCouncil}
	}
	arms = slices.DeleteFunc(slices.Clone(arms), func(arm string) bool { return p.rosterLine(arm, form) == "" })
	if len(arms) == 0 {
		return r
	}
	type bill struct {
		usd   float64
		known bool
		calls int
	}
	bills := map[string]bill{}
	for _, arm := range arms {
		var b bill
		b.usd, b.known = costOf(results, arm)
		for _, result := range results {
			if a := result.Arms[arm]; a != nil {
				b.calls += a.Calls
			}
		}
		bills[arm] = b
	}
	// Arms of equal or unknown cost are compared by their calls.
	cheapest := slices.MinFunc(arms, func(x, y string) int {
		a := bills[x]
		b := bills[y]
		if a.known != b.known {
			return map[bool]int{true: -1, false: 1}[a.known]
		}
		return cmp.Or(cmp.Compare(a.usd, b.usd), cmp.Compare(a.calls, b.calls))
	})
	r.RosterLine = new(p.rosterLine(cheapest, form))
	r.RosterArm = &cheapest
	r.RosterCost = costRatio(results, cheapest)
	return r
}

// costOf returns how much an arm costs at all questions, in US dollars. It returns false if the cost at a question is
// not known.
func costOf(results []Result, arm string) (usd float64, known bool) {
	for _, r := range results {
		a := r.Arms[arm]
		if a == nil || a.CostUSD == nil {
			return 0, false
		}
		usd = council.AddUSD(usd, *a.CostUSD)
	}
	return usd, true
}

// costRatio returns the cost of an arm divided by the cost of the council. It returns nil if one of them is not known,
// or if the council costs nothing.
func costRatio(results []Result, arm string) *float64 {
	usd, known := costOf(results, arm)
	whole, wholeKnown := costOf(results, ArmCouncil)
	if !known || !wholeKnown || whole <= 0 {
		return nil
	}
	return new(usd / whole)
}

// formOf returns the form in which members answer the questions. It returns nil if a question has no form, or another
// one.
func formOf(questions []Prepared) *council.AnswerForm {
	if len(questions) == 0 {
		return nil
	}
	form := questions[0].Session.Form
	for _, q := range questions {
		if !reflect.DeepEqual(q.Session.Form, form) {
			return nil
		}
	}
	return form
}

// rosterLine returns the keys of a council in the roster that serve an arm. They are YAML in flow style, without the
// braces around them. The argument form is the form of all questions, or nil. The result is "" if no keys serve the arm.
func (p Plan) rosterLine(arm string, form *council.AnswerForm) string {
	id, isMember := strings.CutPrefix(arm, armMember)
	n, isFirst := firstOf(arm)
	switch {
	case isMember:
		return members(id) + ", mode: single"
	case arm == string(pipeline.ArmEnsemble):
		line := members(slices.Repeat([]string{p.Ensemble.ID}, p.Samples)...) + ", mode: synthesis"
		// Without the key chairman, the first member writes.
		if writer := council.ModelOf(p.Chairmen[0].ID); writer != council.ModelOf(p.Ensemble.ID) {
			line += ", chairman: " + scalar(writer)
		}
		return line
	case arm == ArmCouncil || arm == ArmRanked || arm == string(pipeline.ArmSynthesis):
		return "mode: " + arm
	case form == nil: // The other arms compare answers.
		return ""
	case arm == ArmVote:
		return "mode: vote, answer_form: " + flow(*form)
	case isFirst:
		return fmt.Sprintf("first: %d, answer_form: %s", n, flow(*form))
	default:
		return ""
	}
}

// members returns the key that names the members of a council, from the ids of seats.
func members(ids ...string) string {
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = scalar(council.ModelOf(id))
	}
	return "members: [" + strings.Join(names, ", ") + "]"
}

// flow returns a form as YAML in flow style.
func flow(form council.AnswerForm) string {
	if form.Options == nil {
		return "{type: " + form.Type + "}"
	}
	options := make([]string, len(form.Options))
	for i, option := range form.Options {
		options[i] = scalar(option)
	}
	return "{type: " + form.Type + ", options: [" + strings.Join(options, ", ") + "]}"
}

var (
	// plainWord matches texts that stand in YAML without quotes.
	plainWord = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_./-]*$`)
	// noString matches words that parsers of YAML 1.1 do not read as texts.
	noString = regexp.MustCompile(`(?i)^(?:y|n|yes|no|on|off|true|false|null)$`)
)

// scalar returns a text as YAML. All escapes of strconv.Quote are also escapes of YAML, if the text is valid UTF-8.
func scalar(text string) string {
	if plainWord.MatchString(text) && !noString.MatchString(text) {
		return text
	}
	return strconv.Quote(strings.ToValidUTF8(text, "\uFFFD"))
}
