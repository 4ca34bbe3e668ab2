package council

// JudgeRequest asks a council to judge answers that exist already. The zero value of a field stands for the configured
// default, if there is one.
type JudgeRequest struct {
	Question string        `json:"question"`
	Answers  []JudgeAnswer `json:"answers"` // 1 to MaxJudged
	Council  string        `json:"council,omitempty"`
	Orders   Orders        `json:"orders,omitempty"`   // OrdersBoth for two answers, and otherwise OrdersOne
	Exclude  Exclude       `json:"exclude,omitempty"`  // ExcludeFamily by default
	Criteria string        `json:"criteria,omitempty"` // what the judges look for, in place of general quality
	// Rubric has 1 to MaxRubric statements. The judges say whether each of them holds. A request with one answer needs
	// a rubric, and a request with several answers must not have one.
	Rubric         []string `json:"rubric,omitempty"`
	Seed           *int64   `json:"seed,omitempty"`     // as in Request
	Category       string   `json:"category,omitempty"` // as in Request
	Language       string   `json:"language,omitempty"` // as in Request
	TimeoutSeconds *float64 `json:"timeout_seconds,omitempty"`
	MaxCostUSD     *float64 `json:"max_cost_usd,omitempty"`
	MaxTotalTokens *int64   `json:"max_total_tokens,omitempty"`
	DataClass      string   `json:"data_class,omitempty"` // as in Request

	Token string `json:"-"` // as in Request
	User  string `json:"-"` // as in Request
}

// JudgeSubmission is the body of POST /v1/judge.
type JudgeSubmission struct {
	JudgeRequest
	// Background has the same meaning as in Submission.
	Background bool `json:"background,omitempty"`
}

// The limits of a JudgeRequest.
const (
	MaxJudged = 26 // the most answers of a JudgeRequest
	MaxRubric = 20 // the most statements of a rubric
)

// JudgeAnswer is an answer to judge.
type JudgeAnswer struct {
	ID   string `json:"id"` // 1 to 64 characters, unique in the request
	Text string `json:"text"`
	// Author is the model that wrote the text, as in "openai/gpt-5". It is "" if that is not known.
	Author string `json:"author,omitempty"`
}

// Orders says how often each judge reads the answers.
type Orders string

// The values of Orders.
const (
	OrdersOne  Orders = "one"  // once, in an order of the balanced design
	OrdersBoth Orders = "both" // twice, the second time in reversed order
)

// Exclude says which answers a judge must not read.
type Exclude string

// The values of Exclude.
const (
	// ExcludeFamily excludes the answers of the judge's model and of other models of the same maker.
	ExcludeFamily Exclude = "family"
	// ExcludeSelf excludes only the answers of the judge's model.
	ExcludeSelf Exclude = "self"
	// ExcludeNone excludes no answer.
	ExcludeNone Exclude = "none"
)

// Exclusion says why a judge does not read an answer.
type Exclusion struct {
	Judge  string `json:"judge"`
	Answer string `json:"answer"`
	Why    string `json:"why"` // SameModel or SameMaker
}

// The reasons of an Exclusion.
const (
	SameModel = "same model"
	SameMaker = "same maker"
)

// Criterion says how the judges voted on a statement of a rubric.
type Criterion struct {
	Text string `json:"text"`
	// Probability is the share of votes for the statement, smoothed as in POST /v1/decisions. It is null if half of the
	// judges or more cast no vote.
	Probability *float64 `json:"probability"`
	Votes       []int    `json:"votes"` // against the statement and for it
	Abstained   int      `json:"abstained"`
	Failed      int      `json:"failed"`
}

// Judgement is the result of a session in which answers were judged. It says what these judges prefer, and not what is
// true.
type Judgement struct {
	SessionID string      `json:"session_id"`
	Status    Status      `json:"status"`
	Verdict   *Verdict    `json:"verdict"`  // null unless there are two answers and the session has a result
	Criteria  []Criterion `json:"criteria"` // the statements of the rubric, in its order. It is empty without a rubric.
	// Mean averages the probabilities of Criteria. It is null if any of them is null.
	Mean        *float64       `json:"mean"`
	Ranking     []JudgedAnswer `json:"ranking"` // the best first
	Ballots     []JudgeBallot  `json:"ballots"` // one for each judge that was asked, in the order of the judges
	Excluded    []Exclusion    `json:"excluded"`
	Agreement   Agreement      `json:"agreement"`
	Warnings    []Warning      `json:"warnings"`
	Degradation []Degradation  `json:"degradation"`
	Usage       TotalUsage     `json:"usage"`
	Persisted   bool           `json:"persisted"`
	Seed        int64          `json:"seed"`
}

// JudgedAnswer is the place of an answer in the ranking.
type JudgedAnswer struct {
	ID        string   `json:"id"`
	Rank      *int     `json:"rank"`       // null if no vote ranks the answer
	Borda     *float64 `json:"borda"`      // Standing.BordaNormalized
	MeanScore *float64 `json:"mean_score"` // the mean of all scores that judges gave, 1 to 10, or null without scores
	Ballots   int      `json:"ballots"`    // how many votes rank the answer
}

// Verdict compares two answers. It says what these judges prefer, and not what is true.
type Verdict struct {
	Winner    *string        `json:"winner"` // the id of the answer with more votes, null if both have equally many
	For       map[string]int `json:"for"`    // the number of votes by id
	Ties      int            `json:"ties"`
	Abstained int            `json:"abstained"` // judges that failed, abstained or did not keep to their vote
	// SignTestP is the exact two-sided p value, 0 to 1, of the sign test (Fisher 1935). It is the probability that
	// votes differ at least this much, if each judge votes at random.
	SignTestP float64 `json:"sign_test_p"`
}

// JudgeBallot is the vote of one judge.
type JudgeBallot struct {
	Judge string `json:"judge"`
	// Vote is the id of the answer that the judge prefers, if there are two answers. It is null if the judge has no
	// vote.
	Vote *string `json:"vote"`
	// Why says why Vote is null. It is null for three or more answers, unless no ballot of the judge counts.
	Why *NoVote `json:"why"`
	// Consistency is Kendall's tau-b of the judge's two rankings, -1 to 1. It is null unless there are three or more
	// answers and two rankings.
	Consistency *float64       `json:"consistency"`
	Orders      []JudgeReading `json:"orders"`
}

// NoVote says why a judge has no vote.
type NoVote string

// The values of NoVote.
const (
	NoVoteTie     NoVote = "tie"     // the judge finds both answers equally good
	NoVoteFlipped NoVote = "flipped" // in the other order, the judge prefers the other answer
	NoVoteUnsure  NoVote = "unsure"  // in one of the two orders, the judge finds both answers equally good
	NoVoteMissing NoVote = "missing" // a ballot is missing, or does not rank both answers
)

// JudgeReading is what a judge said when it read the answers in one order. All answers are named by their ids.
type JudgeReading struct {
	Shown   []string           `json:"shown"`
	Ranking [][]string         `json:"ranking"` // the best first; tied answers together
	Scores  map[string]float64 `json:"scores"`
	Status  Outcome            `json:"status"`
}
