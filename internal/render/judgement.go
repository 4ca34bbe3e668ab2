package render

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/spend"
)

// Judgement returns the result of a session in which answers were judged, as text. It leaves out the cost, because not
// all callers show it in the same place.
func Judgement(j council.Judgement) []byte {
	var b bytes.Buffer
	fmt.Fprintln(&b, judgedSentence(j))
	if j.Verdict == nil && len(j.Ranking) > 0 {
		writeJudged(&b, j.Ranking)
	}
	for _, c := range j.Criteria {
		fmt.Fprintln(&b, criterion(c))
	}
	b.WriteString("\n")
	for _, ballot := range j.Ballots {
		fmt.Fprintf(&b, "%s: %s\n", ballot.Judge, judgeSaid(ballot))
	}
	for _, x := range j.Excluded {
		if slices.ContainsFunc(j.Ballots, func(b council.JudgeBallot) bool { return b.Judge == x.Judge }) {
			fmt.Fprintf(&b, "%s was not shown %s: %s\n", x.Judge, x.Answer, authorOf(x))
		} else {
			fmt.Fprintf(&b, "%s was not asked: it may not read %s: %s\n", x.Judge, x.Answer, authorOf(x))
		}
	}
	fmt.Fprintf(&b, "session %s: %s\n", j.SessionID, j.Status)
	for _, d := range j.Degradation {
		fmt.Fprintf(&b, "missing: %s of %s: %s: %s\n", d.Stage, d.Model, d.Code, d.Message)
	}
	for _, w := range j.Warnings {
		fmt.Fprintf(&b, "warning: %s: %s\n", w.Code, w.Message)
	}
	return b.Bytes()
}

// judgedSentence says what the judges prefer.
func judgedSentence(j council.Judgement) string {
	ended := j.Status == council.StatusComplete || j.Status == council.StatusDegraded
	v := j.Verdict
	switch {
	case !ended && j.Status == council.StatusRunning:
		return "The judges are still reading."
	case !ended:
		return "There is no result."
	case j.Mean != nil:
		return fmt.Sprintf("On average, a statement has a share of %.2f of the votes. That is not the probability that it holds.", *j.Mean)
	case len(j.Criteria) > 0:
		return "Half of the judges or more cast no vote on some statements: there is no mean."
	case v == nil && j.Agreement.Ballots == 0:
		return "No judge has a ballot that counts: there is no ranking."
	case v == nil:
		return j.Agreement.Sentence
	}
	votes := []int{0, 0}
	for i, answer := range j.Ranking {
		votes[i] = v.For[answer.ID]
	}
	slices.Sort(votes)
	var text strings.Builder
	switch {
	case v.Winner != nil:
		fmt.Fprintf(&text, "The judges prefer %s, by %d to %d.", *v.Winner, votes[1], votes[0])
	case votes[0] > 0:
		fmt.Fprintf(&text, "The judges prefer neither answer: %s for each.", counted(votes[0], "vote"))
	default:
		text.WriteString("No judge prefers an answer.")
	}
	if v.Ties > 0 {
		fmt.Fprintf(&text, " Ties: %d.", v.Ties)
	}
	if v.Abstained > 0 {
		fmt.Fprintf(&text, " No vote: %d.", v.Abstained)
	}
	if v.Winner != nil {
		fmt.Fprintf(&text, " If judges voted at random, votes would differ this much with probability %.2g (sign test).", v.SignTestP)
	}
	return text.String()
}

// criterion says how the judges voted on a statement of a rubric.
func criterion(c council.Criterion) string {
	share := "no share"
	if c.Probability != nil {
		share = fmt.Sprintf("%.2f", *c.Probability)
	}
	text := fmt.Sprintf("%s  %s (%d for it, %d against it", share, clip(c.Text), c.Votes[1], c.Votes[0])
	if n := c.Abstained + c.Failed; n > 0 {
		text += fmt.Sprintf(", %d without a vote", n)
	}
	return text + ")"
}

// writeJudged writes a ranking as a table.
func writeJudged(b *bytes.Buffer, ranking []council.JudgedAnswer) {
	b.WriteString("\n")
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "RANK\tANSWER\tBORDA\tMEAN SCORE\tBALLOTS")
	figure := func(value *float64) string {
		if value == nil {
			return "-"
		}
		return fmt.Sprintf("%.2f", *value)
	}
	for _, a := range ranking {
		rank := "-"
		if a.Rank != nil {
			rank = strconv.Itoa(*a.Rank)
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\n", rank, clip(a.ID), figure(a.Borda), figure(a.MeanScore), a.Ballots)
	}
	_ = t.Flush()
}

// judgeSaid says how a judge has voted, or why it has no vote.
func judgeSaid(b council.JudgeBallot) string {
	switch {
	case b.Vote != nil:
		return "prefers " + *b.Vote
	case b.Why != nil:
		return map[council.NoVote]string{
			council.NoVoteTie:     "finds both answers equally good",
			council.NoVoteFlipped: "no vote: in the other order it prefers the other answer",
			council.NoVoteUnsure:  "no vote: in one of the two orders it finds both answers equally good",
			council.NoVoteMissing: "no vote: a ballot is missing",
		}[*b.Why]
	}
	var orders []string
	for _, reading := range b.Orders {
		places := make([]string, len(reading.Ranking))
		for i, place := range reading.Ranking {
			places[i] = strings.Join(place, " = ")
		}
		orders = append(orders, cmp.Or(strings.Join(places, " > "), "no ballot"))
	}
	said := strings.Join(orders, "; in reversed order ")
	if b.Consistency != nil {
		said += fmt.Sprintf(" (tau of the two %.2f)", *b.Consistency)
	}
	return said
}

// authorOf says who wrote an answer that a judge does not read.
func authorOf(x council.Exclusion) string {
	if x.Why == council.SameModel {
		return "its own model wrote it"
	}
	return "a model of its maker wrote it"
}

// Cost returns the cost of a session in words.
func Cost(u council.TotalUsage) string {
	return "cost: " + strings.TrimPrefix(spend.Cost(council.Usage{CostUSD: u.CostUSD, Partial: u.Total.Partial}), "cost ")
}
