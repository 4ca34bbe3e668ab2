package render

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/councild/councild/internal/stat"
	"github.com/councild/councild/internal/worth"
)

// Seats is the result of councild report seats.
type Seats struct {
	worth.SeatsReport
	Members []string `json:"members"` // the names of the seats
	Source  string   `json:"source"`  // the file that they come from
}

// SeatsText returns the report on shared errors of seats as text in at most 80 columns.
func SeatsText(s Seats) []byte { return s.document().text() }

// SeatsHTML returns the report on shared errors of seats as one self-contained HTML page. Like [HTML], it panics if
// the template does not fit.
func SeatsHTML(s Seats) []byte { return s.document().html() }

func (s Seats) document() document {
	d := document{
		Title: "Which seats does the council need?", Headline: s.headline(),
		Facts: []string{fmt.Sprintf("%s, from %s.", asked(s.Questions, s.Clusters), clip(s.Source))},
	}
	add := func(part section) {
		part.ID = "part" + strconv.Itoa(len(d.Sections))
		d.Sections = append(d.Sections, part)
	}
	add(section{
		Title: "Errors in common", Tables: s.correlations(), Notes: []string{
			"phi is the correlation of the errors of two seats: 1 where they are always wrong together, 0 where " +
				"the errors of one say nothing about the other. It is not defined for a seat that is always right or always wrong.",
		},
	})
	add(section{Title: "What a majority makes of them", Notes: s.majorityNotes(), Tables: []grid{s.seats()}})
	if s.EqualAnswers != nil {
		add(section{Title: "How often equal answers are right", Notes: s.equalNotes(), List: s.equalAnswers()})
	}
	for _, way := range []struct {
		name, without string
		mean          *float64
		effect        func(worth.SeatFigure) *worth.SeatEffect
	}{
		{"vote", "answer", s.Vote, func(f worth.SeatFigure) *worth.SeatEffect { return f.Vote }},
		{"ranking", "answer and ballot", s.Ranked, func(f worth.SeatFigure) *worth.SeatEffect { return f.Ranked }},
	} {
		part := section{Title: "What each seat adds to a " + way.name}
		if way.mean == nil {
			part.Notes = []string{"Not defined: this score was not counted at every question."}
		} else {
			part.Notes = []string{fmt.Sprintf("The %s scores %s. It was counted again without the %s of each seat. A point is one right "+
				"answer in 100 questions; p is adjusted by Holm over all seats, for vote and ranking together.",
				way.name, share(*way.mean), way.without)}
			part.Plot, part.Tables = s.effects(way.effect)
		}
		add(part)
	}
	add(section{Title: "What is not claimed", List: []string{
		"What the chairman would have written without a seat: a synthesis can do better than every answer it reads.",
		"Anything about other questions or models than these.",
		"That a seat adds nothing: a difference may exist even if none is shown.",
	}})
	return d
}

// headline says how many independent seats the seats are worth.
func (s Seats) headline() string {
	e := s.Effective
	if e.Value == nil {
		return fmt.Sprintf("The number of independent seats that %s count like is not defined: %s.",
			counted(len(s.Seats), "seat"), s.whyNone())
	}
	count := "count"
	if s.Varying == 1 {
		count = "counts"
	}
	text := fmt.Sprintf("Together, %s %s like %.1f independent ones", counted(s.Varying, "seat"), count, *e.Value)
	if e.Lower != nil && e.Upper != nil {
		text += fmt.Sprintf(" (95 %% interval %.1f to %.1f)", *e.Lower, *e.Upper)
	}
	text += fmt.Sprintf(": the mean correlation of their errors is %.2f.", *s.MeanPhi)
	if left := len(s.Seats) - s.Varying; left > 0 {
		text += fmt.Sprintf(" Left out: %s that made no error or only errors.", counted(left, "seat"))
	}
	if e.Lower == nil {
		text += " There is no interval: it needs 15 errors and 15 right answers of each seat, " +
			"and more than one cluster."
	}
	return text
}

// whyNone returns the reason why the number of independent seats is undefined.
func (s Seats) whyNone() string {
	switch {
	case s.Questions == 0:
		return "there are no questions"
	case s.MeanPhi == nil:
		return "fewer than two of them were sometimes right and sometimes wrong"
	default:
		return fmt.Sprintf("their errors exclude each other, with a mean correlation of %.2f", *s.MeanPhi)
	}
}

// name returns the name of a seat.
func (s Seats) name(i int) string {
	if i < len(s.Members) {
		return clip(s.Members[i])
	}
	return "seat " + strconv.Itoa(i+1)
}

// inRow is the number of correlations that fit into one line of a text, after the name of a seat.
const inRow = 8

// correlations returns tables with phi of each pair of seats. Each table has at most eight columns of seats.
func (s Seats) correlations() (all []grid) {
	for from := 0; from < len(s.Seats); from += inRow {
		g := grid{Columns: []column{{"Seat", "SEAT", true}}}
		if from > 0 {
			g.Title = fmt.Sprintf("With seats from %d on", from+1)
		}
		for j := from; j < min(from+inRow, len(s.Seats)); j++ {
			g.Columns = append(g.Columns, column{strconv.Itoa(j + 1), strconv.Itoa(j + 1), false})
		}
		for i := range s.Seats {
			row := []cell{{Text: lastRunes(fmt.Sprintf("%s (%d)", s.name(i), i+1), 40)}}
			for j := from; j < min(from+inRow, len(s.Seats)); j++ {
				row = append(row, cell{Text: figure("%+.2f", s.Phi[i][j]), Class: shade(s.Phi[i][j])})
			}
			g.Rows = append(g.Rows, row)
		}
		all = append(all, g)
	}
	return all
}

// shade returns the class of a table cell with a correlation. A stronger correlation gets a darker class.
func shade(phi *float64) string {
	if phi == nil {
		return ""
	}
	steps := min(int(math.Round(math.Abs(*phi)*5)), 4)
	switch {
	case steps == 0:
		return ""
	case *phi < 0:
		return "less" + strconv.Itoa(steps)
	default:
		return "more" + strconv.Itoa(steps)
	}
}

// majorityNotes says at how many of the questions most seats are right, and at how many every seat is wrong.
func (s Seats) majorityNotes() []string {
	if s.Majority == nil || s.Independent == nil || s.Gap == nil || s.AllWrong == nil || s.Ceiling == nil {
		return []string{"Not defined: there are no questions."}
	}
	gap := fmt.Sprintf("errors in common cost %.1f points", 100**s.Gap)
	if *s.Gap < 0 {
		gap = fmt.Sprintf("errors that exclude each other gain %.1f points", -100**s.Gap)
	}
	return []string{
		fmt.Sprintf("Most seats are right at %s of the questions, ties counted half. "+
			"If the errors were independent it would be %s: %s.",
			share(*s.Majority), share(*s.Independent), gap),
		fmt.Sprintf("At %s of the questions every seat is wrong. No vote and no ranking of these answers can therefore score more than %s. "+
			"That is no ceiling for a synthesis.", share(*s.AllWrong), share(*s.Ceiling)),
	}
}

// equalNotes says how to read the list of equal answers.
func (s Seats) equalNotes() []string {
	notes := []string{
		"Seats agree if they gave the most frequent answer. The limit is one-sided and holds with a confidence of 95 %, " +
			"for questions like these.",
	}
	if slices.ContainsFunc(s.EqualAnswers, func(a worth.EqualAnswers) bool { return !a.Shows(smallError) }) {
		notes = append(notes, "Even if all such answers are right, you need 29 questions to show that at most 10 % of them are wrong, "+
			"and 59 questions to show that for 5 %.")
	}
	if slices.ContainsFunc(s.EqualAnswers, worth.EqualAnswers.Grouped) {
		notes = append(notes, "Questions of one group may be alike, so several of them can count as one.")
	}
	return notes
}

// The shares of wrong answers that a list of equal answers mentions.
const largeError, smallError = 0.10, 0.05

// equalAnswers says, for each number of seats that gave the same answer, how often that answer was right.
func (s Seats) equalAnswers() []string {
	all := make([]string, len(s.EqualAnswers))
	for i, a := range s.EqualAnswers {
		all[i] = fmt.Sprintf("%d of %d agree: %s of %s right, at least %.0f %%.",
			a.Alike, a.Seats, grouped(a.Right), grouped(a.Questions), math.Floor(100*a.Lower))
		if a.Grouped() {
			all[i] += fmt.Sprintf(" They count as %s.", counted(int(a.Effective), "question"))
		}
		switch {
		case !a.Shows(largeError):
			all[i] += " An error of 10 % or less cannot be shown."
		case !a.Shows(smallError):
			all[i] += " An error of 5 % or less cannot be shown."
		}
	}
	return all
}

// seats returns how often each seat is right, and how often most of the other seats are right.
func (s Seats) seats() grid {
	g := grid{Columns: []column{
		{"Seat", "SEAT", true},
		{"Right", "RIGHT", false},
		{"Most of the others right", "MOST OF THE OTHERS RIGHT", false},
	}}
	for i, f := range s.Seats {
		g.add(s.name(i), shareOrNone(f.Accuracy), shareOrNone(f.MajorityWithout))
	}
	return g
}

// effects returns a plot and a table of what each seat adds to a score. The argument of returns the effect of a seat,
// or nil if there is none.
func (s Seats) effects(of func(worth.SeatFigure) *worth.SeatEffect) (*plot, []grid) {
	g := grid{Columns: []column{
		{"Seat", "SEAT", true},
		{"Points", "POINTS", false},
		{"90 % interval", "90 % INTERVAL", false},
		{"95 % interval", "95 % INTERVAL", false},
		{"p (Holm)", "P", false},
	}}
	spans := make([]span, len(s.Seats))
	for i, f := range s.Seats {
		e := of(f)
		if e == nil {
			spans[i] = intervalSpan(s.name(i), nil)
			g.add(s.name(i), "-", "-", "-", "-")
			continue
		}
		spans[i] = intervalSpan(s.name(i), e.Interval)
		g.add(s.name(i), signed(e.Estimate), limits(e.Lower, e.Upper), limits(e.CI95[0], e.CI95[1]), readableP(&e.PAdjusted))
	}
	p := newPlot("What each seat adds, with intervals. The table that follows holds the same figures.", spans)
	p.Caption = "Points, with the 90 % interval as a thick line and the 95 % interval as a thin one."
	return p, []grid{g}
}

// SeatsCSV returns the report on shared errors of seats as one CSV table (RFC 4180). Each row is one figure. It
// describes all seats, one seat or a pair of seats. Differences are shares, not points. An undefined figure is an
// empty cell.
func SeatsCSV(s Seats) []byte {
	columns := []string{
		"figure", "seat", "other", "estimate", "ci95_lower", "ci95_upper", "lower_one_sided",
		"upper_one_sided", "n", "clusters", "discordance",
		"p", "p_adjusted",
	}
	var rows []map[string]string
	add := func(figure, seat, other string, value stat.Estimate) {
		rows = append(rows, map[string]string{
			"figure": figure, "seat": seat, "other": other,
			"estimate": number(value.Value), "ci95_lower": number(value.Lower), "ci95_upper": number(value.Upper),
		})
	}
	one := func(figure, seat, other string, value *float64) {
		add(figure, seat, other, stat.Estimate{Value: value})
	}
	added := func(figure, seat string, e *worth.SeatEffect) {
		row := map[string]string{}
		if e != nil {
			row = intervalCells(e.Interval)
			row["p"] = number(&e.P)
			row["p_adjusted"] = number(&e.PAdjusted)
		}
		row["figure"] = figure
		row["seat"] = seat
		rows = append(rows, row)
	}
	one("questions", "", "", new(float64(s.Questions)))
	one("clusters", "", "", new(float64(s.Clusters)))
	one("seats_that_vary", "", "", new(float64(s.Varying)))
	one("mean_phi", "", "", s.MeanPhi)
	add("effective_seats", "", "", s.Effective)
	one("all_wrong", "", "", s.AllWrong)
	one("ceiling", "", "", s.Ceiling)
	one("majority", "", "", s.Majority)
	one("majority_if_independent", "", "", s.Independent)
	one("gap", "", "", s.Gap)
	one("vote", "", "", s.Vote)
	one("ranked", "", "", s.Ranked)
	for _, a := range s.EqualAnswers {
		rows = append(rows, map[string]string{
			"figure": fmt.Sprintf("right_where_%d_of_%d_agree", a.Alike, a.Seats), "n": strconv.Itoa(a.Questions),
			"clusters": strconv.Itoa(a.Clusters), "estimate": number(new(float64(a.Right) / float64(a.Questions))),
			"lower_one_sided": number(&a.Lower),
		})
	}
	for i, f := range s.Seats {
		name := s.name(i)
		one("accuracy", name, "", f.Accuracy)
		one("majority_without", name, "", f.MajorityWithout)
		added("vote_added", name, f.Vote)
		added("ranked_added", name, f.Ranked)
		for j := range i {
			one("phi", name, s.name(j), s.Phi[i][j])
		}
	}
	return sheet(columns, rows)
}
