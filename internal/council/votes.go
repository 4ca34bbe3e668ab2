package council

// VoteKind says what a VoteQuestion asks.
type VoteKind string

// The kinds of questions.
const (
	VotePredicate VoteKind = "predicate" // whether a statement is true
	VoteChoice    VoteKind = "choice"    // which option fits
	VoteScore     VoteKind = "score"     // which level fits
)

// VoteQuestion is a question about a text. Each seat of a stage of KindVotes casts one vote on it.
type VoteQuestion struct {
	Kind         VoteKind `json:"kind"`
	Instructions string   `json:"instructions"`
	// Options has two or more options. The levels of a score ascend. The options of a predicate are false and true, in
	// this order.
	Options []VoteOption `json:"options"`
}

// VoteOption is something that a seat can vote for.
type VoteOption struct {
	Text        string `json:"text"`
	Description string `json:"description,omitempty"`
}

// Predicate returns the question whether a statement is true.
func Predicate(statement string) VoteQuestion {
	return VoteQuestion{
		Kind: VotePredicate, Instructions: statement, Options: []VoteOption{{Text: "false"}, {Text: "true"}},
	}
}

// VoteCount says how the seats voted on one question.
type VoteCount struct {
	Votes     []int `json:"votes"`     // in the order of the question's options
	Abstained int   `json:"abstained"` // seats whose reply holds no vote on the question
	Failed    int   `json:"failed"`    // seats without a reply that can be read
}
