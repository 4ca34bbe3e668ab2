package render

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/councild/councild/internal/bias"
	"github.com/councild/councild/internal/worth"
)

// FullReport is a bias report with further evidence. This evidence comes from reviewers and people, and says whether
// the council pays.
type FullReport struct {
	bias.Report
	// Evidence is nil if there is none, or if the request did not ask for it.
	Evidence *CouncilEvidence `json:"evidence,omitempty"`
}

// CouncilEvidence says what reviewers and people prefer in the sessions of one council. This is the council of the
// newest record.
type CouncilEvidence struct {
	CouncilConfig string `json:"council_config_version"`
	// LeftOut counts the records that the evidence does not use: the records of other councils, and the oldest
	// records if there are very many.
	LeftOut int            `json:"left_out"`
	Skipped []bias.Skipped `json:"skipped"`
	worth.Evidence
}

// evidenceTitle is the title of the evidence. evidenceNote says what the evidence cannot show.
const (
	evidenceTitle = "Does the council pay?"
	evidenceNote  = "How often the final answer is preferred to the answer that the council ranked first. That is " +
		"taste, of the council's own members or of people, and never what is right."
)

// preferenceRow is one share of the evidence.
type preferenceRow struct {
	Name     string
	Estimate string
	Interval string
	Sessions int
}

// preferences returns the shares that are known.
func preferences(e *CouncilEvidence) []preferenceRow {
	var rows []preferenceRow
	add := func(name string, sessions int, estimate *float64, low, high float64) {
		rows = append(rows, preferenceRow{name, figure("%.2f", estimate), interval("%.2f", &low, &high), sessions})
	}
	share := func(name string, sessions int, s *worth.Share) {
		if s != nil {
			add(name, sessions, &s.Estimate, s.CI95[0], s.CI95[1])
		}
	}
	shadow := e.Shadow
	people := e.People
	share("reviewers, for the final answer", shadow.Sessions, shadow.Synthesis)
	if s := shadow.EqualLength; s != nil {
		add("the same at equal length", shadow.Sessions, &s.Estimate, s.CI95[0], s.CI95[1])
	}
	share("reviewers, for the text shown first", shadow.Sessions, shadow.First)
	share("people, for the final answer", people.Labelled, people.Synthesis)
	if p := people.Powered; p != nil {
		add("people, helped by reviewers", p.Labelled, &p.Estimate, p.CI95[0], p.CI95[1])
	}
	if people.Wanted > people.Labelled && people.Verdict != worth.TooFewSessions {
		share("if silent people prefer the first", people.Wanted, people.Lowest)
		share("if they prefer the final answer", people.Wanted, people.Highest)
	}
	return rows
}

// agreementRow is a row of a table: how often the council or one reviewer orders answers as people do.
type agreementRow struct {
	Name, Agrees, Interval string
	Pairs, Sessions        int
}

// agreements returns how often the council and its reviewers order answers as people do, for people who were asked
// and for those who were not.
func agreements(e *CouncilEvidence) []agreementRow {
	var rows []agreementRow
	add := func(name string, a worth.Agreement) {
		row := agreementRow{name, figure("%.2f", &a.Share), "-", a.Pairs, a.Sessions}
		if i := a.Interval; i != nil {
			row.Interval = interval("%.2f", &i.CI95[0], &i.CI95[1])
		}
		rows = append(rows, row)
	}
	all := func(behind string, a worth.Agreements) {
		if a.Borda != nil {
			add("the council"+behind, *a.Borda)
		}
		for _, r := range a.Reviewers {
			add(clip(r.ID)+behind, r.Agreement)
		}
	}
	all("", e.People.Agreement)
	all(", unasked", e.People.Unasked.Agreement)
	return rows
}

// sentences returns the evidence in sentences.
func sentences(e *CouncilEvidence) []string {
	shadow := e.Shadow
	people := e.People
	say := func(who string, p worth.Preference, sessions, from int) string {
		switch p {
		case worth.SynthesisPreferred:
			return who + " prefer the final answer to the answer that was ranked first."
		case worth.TopPreferred:
			return who + " prefer the answer that was ranked first to the final answer."
		case worth.EqualPreference:
			return who + " prefer neither: the share is within " + strconv.FormatFloat(worth.EqualWithin, 'f', -1, 64) + " of one half."
		case worth.Inconclusive:
			return who + ": these sessions do not tell which answer is preferred."
		default:
			return fmt.Sprintf("%s: %d of %d sessions that it takes.", who, sessions, from)
		}
	}
	all := []string{say("Reviewers that wrote neither text", shadow.Verdict, shadow.Sessions, worth.ShadowFrom)}
	if people.Wanted > 0 {
		all = append(all, say("People", people.Verdict, people.Labelled, worth.PeopleFrom),
			fmt.Sprintf("%d of %d sessions that people were asked about have their word on both answers.",
				people.Labelled, people.Wanted))
	}
	if people.JudgeAdds != nil && !*people.JudgeAdds {
		all = append(all, fmt.Sprintf("The reviewers add too little to what people say: "+
			"they count no more than %.2f times as many labels would.", people.Powered.Gain))
	}
	if people.Dominant != nil {
		all = append(all, fmt.Sprintf("More than half of the labels are of one person, %s.", clip(*people.Dominant)))
	}
	if people.Rating != nil {
		all = append(all, fmt.Sprintf("Mean rating of final answers by people who were asked: %.1f of 5 (ratings: %d).",
			*people.Rating, people.Ratings))
	}
	if n := people.Unasked.Labels; n > 0 {
		text := fmt.Sprintf("Labels of sessions that nobody asked about: %d. They represent only the people who gave them.",
			n)
		if s := people.Unasked.Synthesis; s != nil {
			text += fmt.Sprintf(" Their share for the final answer is %.2f.", *s)
		}
		all = append(all, text)
	}
	if e.LeftOut > 0 {
		all = append(all, fmt.Sprintf(
			"Left out, because they are of another council or prompt than the newest record, "+
				"or older than 10,000 others: %d.", e.LeftOut))
	}
	return all
}

// writeEvidence writes the evidence, if there is any.
func writeEvidence(b *bytes.Buffer, e *CouncilEvidence) {
	if e == nil {
		return
	}
	b.WriteString("\n" + evidenceTitle + "\n\n" + wrap(evidenceNote, "") + "\n\n")
	for _, sentence := range sentences(e) {
		b.WriteString(wrap(sentence, "") + "\n")
	}
	writeTable(b, "\n", "PREFERENCE\tSHARE\t95 % INTERVAL\tSESSIONS", preferences(e), func(r preferenceRow) string {
		return fmt.Sprintf("%s\t%s\t%s\t%d", r.Name, r.Estimate, r.Interval, r.Sessions)
	})
	const agreement = "\nHow often answers are ordered as a person orders them (chance: 0.50):\n\n"
	writeTable(b, agreement, "ORDER OF\tAGREES\t95 % INTERVAL\tPAIRS\tSESSIONS", agreements(e), func(r agreementRow) string {
		return fmt.Sprintf("%s\t%s\t%s\t%d\t%d", r.Name, r.Agrees, r.Interval, r.Pairs, r.Sessions)
	})
	writeSkipped(b, e.Skipped)
}
