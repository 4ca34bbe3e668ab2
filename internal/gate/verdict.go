package gate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/councild/councild/internal/council"
)

// minMakers is how many makers a verdict needs. minToBlock is how many must call a finding blocking, so that it blocks.
const (
	minMakers  = 2
	minToBlock = 3
)

// tally counts what the seats did.
type tally struct {
	members map[string]*MemberReport
	dropped map[string]int
	usage   council.Usage
	calls   int
	budget  bool // a call was not made because the cost or token limit was reached
	tooLong bool // a call was not made because it does not fit the model
	found   map[string]bool
	judged  map[string]bool // makers that did all that the second round asked of them
}

func newTally() *tally {
	return &tally{
		members: map[string]*MemberReport{}, dropped: map[string]int{}, found: map[string]bool{}, judged: map[string]bool{},
	}
}

func (t *tally) member(seat string) *MemberReport {
	if t.members[seat] == nil {
		t.members[seat] = &MemberReport{ID: seat}
	}
	return t.members[seat]
}

// note notes a reply. It returns false if the reply is an error.
func (t *tally) note(r council.TaskReply) bool {
	if t.calls++; t.calls == 1 {
		t.usage = r.Usage
	} else {
		t.usage = t.usage.Plus(r.Usage)
	}
	if r.Error != nil {
		t.fail(r.Seat, r.Error)
	}
	return r.Error == nil
}

// fail notes why a seat has no result. Of several reasons, the first is kept.
func (t *tally) fail(seat string, why *council.Failure) {
	m := t.member(seat)
	m.Error = cmp.Or(m.Error, why)
	t.budget = t.budget || why.Code == council.FailBudget
	t.tooLong = t.tooLong || why.Code == council.FailTooLong
}

// readFound reads the replies of the first round.
func (c *change) readFound(round council.TaskRound, t *tally) (all []*finding) {
	for _, r := range round.Replies {
		if !t.note(r) {
			continue
		}
		dropped := map[string]int{}
		found, ok := c.readFindings(r.Seat, r.Text, dropped)
		if !ok {
			t.fail(r.Seat, unreadable("findings"))
			continue
		}
		t.found[c.makers[r.Seat]] = true
		m := t.member(r.Seat)
		m.Found = len(found)
		for why, n := range dropped {
			t.dropped[why] += n
			m.Dropped += n
		}
		all = append(all, found...)
	}
	return all
}

// readBallots reads the replies of the second round. A reviewer that had nothing to judge has done its part.
func (c *change) readBallots(
	plan council.Plan, groups []*group, rounds []council.TaskRound, t *tally,
) (ballots []ballot) {
	replies := map[string]council.TaskReply{}
	for _, round := range rounds[min(1, len(rounds)):] {
		for _, r := range round.Replies {
			replies[r.Seat] = r
		}
	}
	for i, shown := range slates(plan, groups) {
		seat := plan.Seats(council.KindTask2)[i].ID
		if len(shown) == 0 {
			t.judged[c.makers[seat]] = true
			continue
		}
		ids := map[string]bool{}
		for _, g := range shown {
			ids[g.id] = true
		}
		r, called := replies[seat]
		if !called || !t.note(r) {
			continue
		}
		b, ok := readBallot(seat, r.Text, ids)
		counts := func(g *group) bool { return b.votes[g.id].Seat != "" && !g.by(c.twins, seat) }
		if !ok || !slices.ContainsFunc(shown, counts) {
			t.fail(seat, unreadable("votes"))
			continue
		}
		t.judged[c.makers[seat]] = true
		t.member(seat).Reviewed = true
		ballots = append(ballots, b)
	}
	slices.SortFunc(ballots, func(a, b ballot) int { return cmp.Compare(a.seat, b.seat) })
	return ballots
}

// judgement is what the makers say about a finding.
type judgement struct {
	finding Finding
	behind  int  // makers that found or confirmed it
	wants   bool // The finding would block if more makers had voted.
}

// stand counts what the seats of one maker say.
type stand struct{ behind, against, blocking int }

// stands has the stand of each maker that found a defect or voted on it.
type stands map[string]stand

func (s stands) count(maker string, stance Stance, severity Severity) {
	one := s[maker]
	switch stance {
	case Confirm:
		one.behind++
		if severity == Blocking {
			one.blocking++
		}
	case Reject:
		one.against++
	case Unsure:
	}
	s[maker] = one
}

// sum counts the makers. A maker has one vote, as most of its seats say.
func (s stands) sum() (makers stand) {
	for _, one := range s {
		switch {
		case one.behind > one.against:
			makers.behind++
			if 2*one.blocking > one.behind {
				makers.blocking++
			}
		case one.behind < one.against:
			makers.against++
		}
	}
	return makers
}

// newFinding returns a finding as its members describe it, without votes.
func newFinding(g *group) Finding {
	first := g.found[0]
	f := Finding{
		ID: g.id, Fingerprint: first.file.fingerprint(first.place), File: first.file.name,
		Start: first.file.start(first.place), End: first.file.end(first.place),
		Removed: first.file.removed(first.place), Quote: first.file.quote(first.place), Severity: Advisory,
		FoundBy: []string{}, ConfirmedBy: []string{}, RejectedBy: []string{}, Votes: []Vote{}, Wordings: []Wording{},
	}
	for _, by := range g.found {
		f.FoundBy = append(f.FoundBy, by.seat)
		f.Wordings = append(f.Wordings, Wording{Seat: by.seat, What: by.what, Scenario: by.scenario, Severity: by.severity})
	}
	slices.Sort(f.FoundBy)
	return f
}

// judge counts the votes on a finding.
func (c *change) judge(g *group, ballots []ballot) judgement {
	j := judgement{finding: newFinding(g)}
	f := &j.finding
	s := stands{}
	for _, by := range g.found {
		s.count(c.makers[by.seat], Confirm, by.severity)
	}
	for _, b := range ballots {
		v, ok := c.vote(b, g)
		if !ok {
			continue
		}
		s.count(c.makers[v.Seat], v.Vote, v.Severity)
		f.Votes = append(f.Votes, v)
		switch v.Vote {
		case Confirm:
			f.ConfirmedBy = append(f.ConfirmedBy, v.Seat)
		case Reject:
			f.RejectedBy = append(f.RejectedBy, v.Seat)
		case Unsure:
		}
	}
	makers := s.sum()
	j.behind = makers.behind
	f.Confirmed = makers.behind-1 > makers.against
	if 2*makers.blocking > makers.behind {
		f.Severity = Blocking
		f.Blocks = f.Confirmed && makers.blocking >= minToBlock
		j.wants = f.Confirmed && len(s) < minToBlock
	}
	c.ignore(g, &j)
	return j
}

// vote returns the vote of a reviewer on a finding. If the reviewer saw the finding as several ones, a confirmation
// counts before a rejection. It returns false if the reviewer's model found it, or if the reviewer did not vote on it.
func (c *change) vote(b ballot, g *group) (vote Vote, ok bool) {
	if g.by(c.twins, b.seat) {
		return vote, false
	}
	for _, stance := range []Stance{Confirm, Reject, Unsure} {
		for _, id := range g.ids {
			if v, ok := b.votes[id]; ok && v.Vote == stance {
				return v, true
			}
		}
	}
	return vote, false
}

// ignore marks a finding that people have accepted. It then does not block.
func (c *change) ignore(g *group, j *judgement) {
	for _, f := range g.found {
		fingerprint := f.file.fingerprint(f.place)
		for _, ignored := range c.Ignore {
			if ignored.Fingerprint == fingerprint {
				j.finding.Fingerprint = fingerprint
				j.finding.Ignored = clean(ignored.Reason, maxReason)
				j.finding.Blocks = false
				j.wants = false
				return
			}
		}
	}
}

// report makes the report from the replies.
func (c *change) report(plan council.Plan, rounds []council.TaskRound) Report {
	t := newTally()
	var found []*finding
	if len(rounds) > 0 {
		found = c.readFound(rounds[0], t)
	}
	groups := c.merge(found)
	ballots := c.readBallots(plan, groups, rounds, t)
	joined := c.join(groups, ballots)
	all := make([]judgement, len(joined))
	for i, g := range joined {
		all[i] = c.judge(g, ballots)
	}
	c.show(all)
	r := Report{
		Findings: []Finding{}, Dropped: t.dropped, LeftOut: c.leftOut, Members: []MemberReport{}, Ignored: []Ignored{},
	}
	for _, j := range all {
		r.Findings = append(r.Findings, j.finding)
		if j.finding.Ignored != "" {
			r.Ignored = append(r.Ignored, Ignored{Fingerprint: j.finding.Fingerprint, Reason: j.finding.Ignored})
		}
	}
	for _, seat := range slices.Sorted(maps.Keys(c.makers)) {
		m := t.member(seat)
		m.Maker = c.makers[seat]
		r.Members = append(r.Members, *m)
	}
	if t.calls > 0 {
		r.Usage = &t.usage
	}
	r.Makers = len(t.found)
	if len(groups) > 0 {
		r.Makers = min(r.Makers, len(t.judged))
	}
	r.Verdict, r.Reason = c.verdict(all, r, t)
	return r
}

// show orders the findings, the worst first, and decides which of them are shown.
func (c *change) show(all []judgement) {
	rank := func(j judgement) int {
		f := j.finding
		switch {
		case f.Blocks:
			return 0
		case f.Confirmed && f.Ignored == "" && f.Severity == Blocking:
			return 1
		case f.Confirmed && f.Ignored == "":
			return 2
		default:
			return 3
		}
	}
	slices.SortStableFunc(all, func(a, b judgement) int {
		if d := cmp.Compare(rank(a), rank(b)); d != 0 || rank(a) == 3 {
			return d
		}
		return cmp.Compare(b.behind, a.behind)
	})
	limit := cmp.Or(c.MaxFindings, defaultShown)
	for i := range all {
		all[i].finding.Shown = i < limit && rank(all[i]) < 3
	}
}

// verdict returns the verdict, and its reason in one sentence.
func (c *change) verdict(all []judgement, r Report, t *tally) (Verdict, string) {
	blocks, wants := 0, 0
	for _, j := range all {
		if j.finding.Blocks {
			blocks++
		}
		if j.wants {
			wants++
		}
	}
	switch {
	case c.tooLarge():
		return Undecided, fmt.Sprintf("The diff is too large: the files to review have %d bytes, %d are allowed.",
			len(c.text), c.most)
	case len(c.files) == 0:
		return Pass, "There is nothing to review: all files are left out."
	case blocks > 0:
		return Blocked, fmt.Sprintf("At least %d makers call %s blocking.", minToBlock, counted(blocks, "finding"))
	case t.budget:
		return Undecided, "A cost or token limit was reached before all members had replied."
	case r.Makers < minMakers && t.tooLong:
		return Undecided, fmt.Sprintf("The diff is too large for the members: %s replied in both rounds.",
			counted(r.Makers, "maker"))
	case r.Makers < minMakers:
		return Undecided, fmt.Sprintf("Models of %s replied in both rounds, at least %d makers are needed.",
			counted(r.Makers, "maker"), minMakers)
	case wants > 0:
		return Undecided, fmt.Sprintf("%s would block, but fewer than %d makers have judged it.",
			counted(wants, "finding"), minToBlock)
	}
	return Pass, "No finding blocks."
}

// counted returns a number with a noun.
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, strings.TrimSpace(noun))
}
