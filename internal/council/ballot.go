package council

// Label names an answer on a slate: "Response A".
type Label string

// Slate is the list of anonymised answers that one reader is shown, in the order shown. The labels on every slate are
// "Response A", "Response B" and so on, in this order (the invariant of ADR-015 and ADR-017).
type Slate []Shown

// Shown is an answer on a slate. Its index on the slate is its position.
type Shown struct {
	Label  Label
	Member string // the id of the member that wrote it
}

// Seat names the member whose answer has a label, and the position at which that answer was shown.
type Seat struct {
	Model        string `json:"model"`
	DisplayIndex int    `json:"display_index"` // 0 is the first
}

// LabelToModel returns the slate as a map from labels to seats. The design records call this map the enhanced form.
func (s Slate) LabelToModel() map[Label]Seat {
	m := make(map[Label]Seat, len(s))
	for i, shown := range s {
		m[shown.Label] = Seat{Model: shown.Member, DisplayIndex: i}
	}
	return m
}

// Positions returns the position at which each member's answer was shown.
func (s Slate) Positions() map[string]int {
	m := make(map[string]int, len(s))
	for i, shown := range s {
		m[shown.Member] = i
	}
	return m
}

// Labels returns the labels in the order shown.
func (s Slate) Labels() []Label {
	labels := make([]Label, len(s))
	for i, shown := range s {
		labels[i] = shown.Label
	}
	return labels
}

// Ballot is the ranking and the scores that were read from a reviewer's reply. Its labels are the labels on the
// reviewer's own slate.
type Ballot struct {
	// Ranking holds the ranked labels, best first, each at most once. It leaves out
	// labels that the reviewer did not rank.
	Ranking []Label `json:"ranking"`
	// Tied lists the groups of two or more labels that share a rank. The labels of a group are adjacent in Ranking.
	Tied [][]Label `json:"tied"`
	// Scores has the scores, 1 to 10. It leaves out labels that the reviewer did not score.
	Scores map[Label]float64 `json:"scores"`
	// Abstained is true when the reviewer declined to rank. Reason then holds the
	// reviewer's words. For an invalid ballot, Reason says why it is invalid.
	Abstained bool   `json:"abstained"`
	Reason    string `json:"reason"`
	// Source says from which part of the reply the ballot was read.
	Source BallotSource `json:"source"`
	// ScoreRankMismatch says that the ranking contradicts the ballot's own scores. The ranking then counts (ADR-007).
	ScoreRankMismatch bool `json:"score_rank_mismatch"`
}

// Partial reports whether the ballot ranks some but not all labels of a slate of the
// given length.
func (b Ballot) Partial(slate int) bool { return len(b.Ranking) > 0 && len(b.Ranking) < slate }

// Groups returns the labels of the ranking by rank, from best to worst. A group has one label, or more if labels are
// tied.
func (b Ballot) Groups() [][]Label {
	if len(b.Ranking) == 0 {
		return nil
	}
	var first map[Label]int
	if len(b.Tied) > 0 {
		first = make(map[Label]int, len(b.Ranking))
	}
	for i, group := range b.Tied {
		for _, l := range group {
			first[l] = i + 1
		}
	}
	groups := make([][]Label, 0, len(b.Ranking))
	previous := 0
	for i, l := range b.Ranking {
		tie := first[l]
		if tie != 0 && tie == previous {
			groups[len(groups)-1] = append(groups[len(groups)-1], l)
		} else {
			groups = append(groups, b.Ranking[i:i+1:i+1])
		}
		previous = tie
	}
	return groups
}

// BallotSource is the part of a reply that a ballot was read from.
type BallotSource string

// The sources of a ballot.
const (
	SourceNone         BallotSource = ""              // nothing was read
	SourceJSON         BallotSource = "json"          // a "ranking" in a JSON value
	SourceScores       BallotSource = "scores"        // the ranking was derived from JSON scores
	SourceFinalRanking BallotSource = "final_ranking" // a list under a "FINAL RANKING" line
	SourceTable        BallotSource = "table"         // a table with a rank column
	SourceScoreList    BallotSource = "score_list"    // a table or list of "n/10" scores
	SourceProse        BallotSource = "prose"         // a refusal in prose
)

// Standing is the result of one candidate in the session's ranking (ADR-007).
type Standing struct {
	Model string `json:"model"`
	// BordaScore is the mean of the candidate's points on the ballots that ranked the candidate, 0 to N-1 for N
	// candidates. It is null if no ballot ranked the candidate.
	BordaScore *float64 `json:"borda_score"`
	// BordaNormalized is BordaScore / (N-1), 0 to 1. It is null if BordaScore is null.
	BordaNormalized *float64 `json:"borda_normalized"`
	VoteCount       int      `json:"vote_count"`
	WinCount        float64  `json:"win_count"`  // A first place that k candidates share counts 1/k.
	FinalRank       *int     `json:"final_rank"` // null if no ballot ranked the candidate
	// VoteCoverage is "high", "medium" or "low". It says how many of the reviewers that were asked to rank the candidate
	// did so.
	VoteCoverage string `json:"vote_coverage"`
}

// AgreementLevel says how far the ballots of a session agree on an order, compared with random ballots. The list of its
// values is closed.
type AgreementLevel string

// The levels of agreement.
const (
	AgreementAgree   AgreementLevel = "agree"   // Random ballots agree this far in at most one of twenty sessions.
	AgreementLean    AgreementLevel = "lean"    // Random ballots agree this far in at most one of five sessions.
	AgreementNone    AgreementLevel = "none"    // Random ballots agree this far more often.
	AgreementUnknown AgreementLevel = "unknown" // Even equal ballots could not show agreement.
)

// Sentence returns the level in words, for people.
func (l AgreementLevel) Sentence() string {
	switch l {
	case AgreementAgree:
		return "The reviewers agree on the order. Chance does that in one of twenty sessions at most. They judge alike; that does not make them right."
	case AgreementLean:
		return "The reviewers lean to one order. Chance does so in one of five sessions."
	case AgreementNone:
		return "The reviewers do not agree: treat the order as undecided."
	default:
		return "These ballots cannot show whether the reviewers agree."
	}
}

// Agreement says how far the ballots agree with each other, and how firm the ranking is. It does not change the vote.
type Agreement struct {
	// Level says whether the ballots agree on an order further than by chance, and Sentence says it in words.
	Level    AgreementLevel `json:"level"`
	Sentence string         `json:"sentence"`
	// P is the probability that random ballots agree at least as much as these. It is null if Level is unknown.
	P *float64 `json:"p"`
	// KendallW measures how far the ballots agree, from 0 to 1. It is 1 if all ballots agree. Random ballots also give
	// more than 0. If reviewers do not see their own answers, the mean over random ballots is 0.40 for four members and
	// 0.28 for five. KendallW is null if fewer than two ballots compare some pair of answers. This is always the case
	// if three members review each other.
	KendallW *float64 `json:"kendall_w"`
	Ballots  int      `json:"ballots"` // how many ballots count
	// CondorcetWinner is the answer that more ballots rank above than below each other answer. It is null if there is
	// no such answer.
	CondorcetWinner *string `json:"condorcet_winner"`
	// Copeland has, by model, the number of other models that the model beats. A draw counts one half.
	Copeland map[string]float64 `json:"copeland"`
	// Pairwise says, by model and other model, how many ballots rank the first above
	// the second.
	Pairwise map[string]map[string]int `json:"pairwise"`
	// WinnerSupport is the share of resamples of the ballots that each model wins.
	WinnerSupport []Support `json:"winner_support"`
	// LeaveOneOut says, for each ballot, which models win without that ballot.
	LeaveOneOut []Omission `json:"leave_one_out"`
}

// Support is the share of resamples of the ballots that a model wins. It says how certain the win is.
type Support struct {
	Model   string  `json:"model"`
	Support float64 `json:"support"` // 0 to 1
}

// Omission says which models win if the ballot of one reviewer is left out.
type Omission struct {
	Reviewer string `json:"reviewer"`
	// Winners has more than one model if they are equal. It is empty if no ballot is left.
	Winners []string `json:"winners"`
	Changes bool     `json:"changes"` // true if all ballots together have other winners
}
