package council

// Label names an answer on a slate: "Response A".
type Label string

// Slate is a list of anonymised answers in the order in which one reader is
// shown them. Labels run "Response A", "Response B", ... in that order, on every
// slate (the invariant of ADR-015 and ADR-017).
type Slate []Shown

// Shown is an answer on a slate. Its index on the slate is its position.
type Shown struct {
	Label  Label
	Member string // the id of the member that wrote it
}

// Seat is the member behind a label, and the place at which its answer was shown.
type Seat struct {
	Model        string `json:"model"`
	DisplayIndex int    `json:"display_index"` // 0 is the first
}

// LabelToModel returns the slate in the design records' enhanced form.
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

// Ballot is what a reviewer's reply says, over the labels of its own slate.
type Ballot struct {
	// Ranking holds the ranked labels, best first, each at most once. Labels the
	// reviewer did not rank are not in it.
	Ranking []Label `json:"ranking"`
	// Tied lists the groups of two or more labels that share a place; a group's
	// labels are adjacent in Ranking.
	Tied   [][]Label         `json:"tied"`
	Scores map[Label]float64 `json:"scores"` // 1 to 10; only labels that were scored
	// Abstained is true when the reviewer declined to rank; Reason then holds the
	// reviewer's words. For an invalid ballot Reason says why it is invalid.
	Abstained bool   `json:"abstained"`
	Reason    string `json:"reason"`
	// Source says how the ballot was read: see BallotSource.
	Source BallotSource `json:"source"`
	// ScoreRankMismatch marks a ranking that contradicts its own scores. The
	// ranking is trusted (ADR-007).
	ScoreRankMismatch bool `json:"score_rank_mismatch"`
}

// Partial reports whether the ballot ranks some but not all labels of a slate of the
// given length.
func (b Ballot) Partial(slate int) bool { return len(b.Ranking) > 0 && len(b.Ranking) < slate }

// Groups returns the ranking as places from best to worst, each a group of one
// or more labels that share it.
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

// Standing is one candidate's place in the session's ranking (ADR-007).
type Standing struct {
	Model string `json:"model"`
	// BordaScore is the mean over the ballots that ranked the candidate, 0 to N-1
	// for N candidates; null where no ballot ranked it.
	BordaScore      *float64 `json:"borda_score"`
	BordaNormalized *float64 `json:"borda_normalized"` // BordaScore / (N-1), 0 to 1; null with it
	VoteCount       int      `json:"vote_count"`
	WinCount        float64  `json:"win_count"`  // a shared first place counts its share
	FinalRank       *int     `json:"final_rank"` // null where no ballot ranked the candidate
	// VoteCoverage is "high", "medium" or "low": it depends on how many of the reviewers
	// that were asked to review the candidate ranked it.
	VoteCoverage string `json:"vote_coverage"`
}

// AgreementLevel is the closed list of levels of agreement.
type AgreementLevel string

// The levels.
const (
	AgreementAgree   AgreementLevel = "agree"   // ballots at random agree as far in at most one of twenty sessions
	AgreementLean    AgreementLevel = "lean"    // ballots at random agree as far in at most one of five sessions
	AgreementNone    AgreementLevel = "none"    // ballots at random agree as far more often
	AgreementUnknown AgreementLevel = "unknown" // even ballots that all say the same could not show agreement
)

// Sentence says a level in words.
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

// Agreement is how far the ballots agree with each other, and how firm the
// ranking is. It is for reading: nothing in it changes the vote.
type Agreement struct {
	// Level says whether the ballots agree on an order further than chance, and Sentence says it in words.
	Level    AgreementLevel `json:"level"`
	Sentence string         `json:"sentence"`
	// P is the probability that ballots without any agreement agree as far as these; null where Level is unknown.
	P *float64 `json:"p"`
	// KendallW is 0 to 1, and more than 0 by chance alone: with own answers hidden .40 of four
	// members in the mean, .28 of five. It is null where some two answers are compared by fewer
	// than two ballots, as where three members review each other.
	KendallW *float64 `json:"kendall_w"`
	Ballots  int      `json:"ballots"` // counted ballots
	// CondorcetWinner is preferred to each other answer by more ballots than the
	// other way round; null where there is none.
	CondorcetWinner *string `json:"condorcet_winner"`
	// Copeland is, by model, over how many others it is preferred, a draw counting
	// one half.
	Copeland map[string]float64 `json:"copeland"`
	// Pairwise is, by model and other model, how many ballots rank the first above
	// the second.
	Pairwise map[string]map[string]int `json:"pairwise"`
	// WinnerSupport is the share of resamples of the ballots that each model wins.
	WinnerSupport []Support `json:"winner_support"`
	// LeaveOneOut says who wins without each ballot.
	LeaveOneOut []Omission `json:"leave_one_out"`
}

// Support is how firmly a model wins.
type Support struct {
	Model   string  `json:"model"`
	Support float64 `json:"support"` // 0 to 1
}

// Omission is who wins when one ballot is left out.
type Omission struct {
	Reviewer string   `json:"reviewer"`
	Winners  []string `json:"winners"` // more than one when they are equal; empty when no ballot is left
	Changes  bool     `json:"changes"` // the winners are not those of all ballots
}
