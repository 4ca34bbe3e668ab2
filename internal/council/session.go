package council

import (
	"encoding/json"
	"slices"
	"time"
)

// Status is where a session stands.
type Status string

// The states of a session.
const (
	StatusRunning   Status = "running"
	StatusComplete  Status = "complete"
	StatusDegraded  Status = "degraded"
	StatusFailed    Status = "failed"
	StatusCancelled Status = "cancelled"
)

// Session is one council run from question to answer: the body that
// POST /v1/council returns.
type Session struct {
	ID      string    `json:"session_id"`
	Status  Status    `json:"status"`
	Created time.Time `json:"created"`
	Query   string    `json:"query"`          // the beginning of the question, see Plan.Preview
	Council string    `json:"council"`        // name of the council that was asked; "default" without a roster
	User    string    `json:"user,omitempty"` // the person for whom the caller asked, as the caller named them
	Answer  string    `json:"answer"`
	// Note says in a line what is missing from a degraded session and whose text the answer is, for those who read the answer
	// alone; "" where there is nothing to say, where the answer is JSON, and where it is switched off.
	Note        string        `json:"note,omitempty"`
	Persisted   bool          `json:"persisted"` // the records are kept, as BIAS_FSYNC defines
	Degradation []Degradation `json:"degradation"`
	Stage1      []Answer      `json:"stage1"` // in the order of the members
	Stage2      []Review      `json:"stage2"` // in the order of the reviewers
	Stage3      *Synthesis    `json:"stage3"`
	Metadata    Metadata      `json:"metadata"`
}

// Degradation is one thing that is missing from a session, and why.
type Degradation struct {
	Stage   Stage       `json:"stage"`
	Model   string      `json:"model"`
	Code    FailureCode `json:"code"`
	Message string      `json:"message"`
}

// Spent is what one seat's calls took.
type Spent struct {
	LatencyMS float64 `json:"latency_ms"` // wall time, all attempts
	Attempts  int     `json:"attempts"`   // requests sent
	Usage     Usage   `json:"usage"`
	// ModelVersion is the name of the model in the reply that counts, as its provider gave it. It is often more exact than
	// the name that was asked for, and may also be the same. Nil means that no reply counts, or that it named no model.
	ModelVersion *string `json:"model_version"`
	// LeftOut holds the options that are set and that the model does not take, by their names in
	// requests: it was asked without them.
	LeftOut []string `json:"left_out,omitempty"`
	// PromptCut says that the provider read far fewer tokens than the prompt must have: it cut the prompt without a word.
	PromptCut bool `json:"prompt_cut,omitempty"`
}

// Add adds what further calls took. ModelVersion stays: the caller knows which reply counts.
func (s *Spent) Add(more Spent) {
	for _, option := range more.LeftOut {
		if !slices.Contains(s.LeftOut, option) {
			s.LeftOut = append(s.LeftOut, option)
		}
	}
	s.PromptCut = s.PromptCut || more.PromptCut
	s.LatencyMS += more.LatencyMS
	s.Attempts += more.Attempts
	s.Usage = s.Usage.Plus(more.Usage)
}

// Outcome says whether a seat delivered.
type Outcome string

// The outcomes of a seat. Abstained and invalid exist in stage 2 only, fallback
// in stage 3 only.
const (
	OutcomeOK        Outcome = "ok"
	OutcomeError     Outcome = "error"
	OutcomeAbstained Outcome = "abstained" // the reviewer declined to rank
	OutcomeInvalid   Outcome = "invalid"   // the reply holds no ballot
	OutcomeFallback  Outcome = "fallback"  // the chairman failed, and a fallback took its place
)

// Answer is a member's answer to the question.
type Answer struct {
	Model        string  `json:"model"`
	Status       Outcome `json:"status"`
	Response     *string `json:"response"`
	Reasoning    *string `json:"reasoning"` // as in Completion; null for none
	FinishReason *string `json:"finish_reason"`
	Spent
	Error *Failure `json:"error"`
}

// Review is a reviewer's reading of the answers on its slate.
type Review struct {
	Model        string         `json:"model"`
	Status       Outcome        `json:"status"`
	LabelToModel map[Label]Seat `json:"label_to_model"`
	Ranking      *string        `json:"ranking"` // the reply, without its thinking
	// Repair is the reply to the repair call, null when there was none. Repaired
	// says that ParsedRanking was read from it.
	Repair        *string `json:"repair"`
	Repaired      bool    `json:"repaired"`
	ParsedRanking *Ballot `json:"parsed_ranking"`
	Reasoning     *string `json:"reasoning"` // of Ranking, as in Completion; null for none
	FinishReason  *string `json:"finish_reason"`
	Spent
	Error *Failure `json:"error"`

	Slate Slate `json:"-"` // what LabelToModel was made from
}

// Fallback says what took the place of the chairman's synthesis.
type Fallback string

// The fallbacks, in the order in which they are tried.
const (
	FallbackSecondChairman Fallback = "second_chairman" // another model wrote the synthesis
	FallbackTopRanked      Fallback = "top_ranked"      // the best answer, unchanged
	FallbackFirstAnswer    Fallback = "first_answer"    // there is no ranking: the first answer
)

// Synthesis is the final answer and its origin.
type Synthesis struct {
	Model        string    `json:"model"` // which wrote the response
	Response     string    `json:"response"`
	Status       Outcome   `json:"status"`    // ok or fallback
	Fallback     *Fallback `json:"fallback"`  // null when the chairman wrote it
	Reasoning    *string   `json:"reasoning"` // of the model that wrote the response, as in Completion; null for none
	FinishReason *string   `json:"finish_reason"`
	// Parsed is the value that Response is the JSON of, where the caller gave a schema; else null.
	Parsed *json.RawMessage `json:"parsed"`
	Spent
	Error *Failure `json:"error"` // of the chairman; null if it wrote the response
}

// AnswerDelta is a piece of a member's answer as it arrives. The pieces of one member since
// its last AnswerRestart add up to Answer.Response, or to the beginning of a reply that
// failed. The Answer takes the place of them all.
type AnswerDelta struct {
	Model string `json:"model"` // member id
	Text  string `json:"text"`  // never empty
}

// AnswerRestart voids all AnswerDeltas of one member so far: what it wrote is lost, and it
// is asked again. With FailThinking it was thinking, and the answer follows.
type AnswerRestart struct {
	Model  string      `json:"model"`  // member id
	Reason FailureCode `json:"reason"` // why it is lost
}

// Delta is a piece of the synthesis as it arrives. The pieces since the last
// Restart add up to Synthesis.Response.
type Delta struct {
	Text string `json:"text"` // never empty
}

// Restart voids all Deltas so far. The model that wrote them failed, and another one begins
// again. With FailInterrupted the daemon of the session was gone, and its text is written
// again, by the same model as a rule. With FailThinking the text was thinking, and the answer of the same model follows.
type Restart struct {
	Model  string      `json:"model"`  // whose text is void
	Reason FailureCode `json:"reason"` // why
}

// Metadata is everything about a session besides its texts.
type Metadata struct {
	// LabelToModel is what the labels stood for, where all reviewers saw the same; else nil, and each review has its own.
	LabelToModel map[Label]Seat `json:"label_to_model"`
	// ReviewerPositionMapping holds, for each reviewer, where it saw each answer.
	ReviewerPositionMapping map[string]map[string]int `json:"reviewer_position_mapping"`
	Tally
	Seed     int64      `json:"seed"`
	Order    Order      `json:"order"`
	Usage    TotalUsage `json:"usage"`
	Timing   Timing     `json:"timing"`
	Warnings []Warning  `json:"warnings"`
	Versions Versions   `json:"versions"`
	// DemographicJudgement is what the judge said; null where none was asked for.
	DemographicJudgement *DemographicJudgement `json:"demographic_judgement"`
	// DemographicClustering is what the embeddings of the answers say; null where nobody asked.
	DemographicClustering *DemographicClustering `json:"demographic_clustering"`
	// LabelWanted says that the session was drawn to have people say which answer they prefer.
	LabelWanted bool `json:"label_wanted,omitempty"`
}

// Tally is what stage 2 adds up to.
type Tally struct {
	AggregateRankings []Standing `json:"aggregate_rankings"`
	Agreement         Agreement  `json:"agreement"`
	BiasAudit         *BiasAudit `json:"bias_audit"` // null when it is switched off
	// BiasIndicators is null when the audit is switched off.
	BiasIndicators *BiasIndicators `json:"bias_indicators"`
	// DemographicDisagreement is null when it is switched off, and when it was not done
	// in the time of stage 2.
	DemographicDisagreement *DemographicDisagreement `json:"demographic_disagreement"`
}

// BiasAudit holds ADR-015's indicators of one session. One session cannot prove
// a bias: every figure is an indicator. A figure that is undefined is null.
type BiasAudit struct {
	LengthScoreCorrelation *float64 `json:"length_score_correlation"` // Pearson r of length in characters and mean score
	// LengthScoreCILower and LengthScoreCIUpper are the 95 % interval of the correlation
	// (Fisher's z), null below four answers.
	LengthScoreCILower    *float64           `json:"length_score_ci_lower"`
	LengthScoreCIUpper    *float64           `json:"length_score_ci_upper"`
	LengthScorePValue     *float64           `json:"length_score_p_value"` // exact, Student t
	LengthAssociation     *bool              `json:"length_association"`
	PositionScoreVariance *float64           `json:"position_score_variance"` // population variance of the means per position
	PositionPValue        *float64           `json:"position_p_value"`        // over orders that could have been drawn
	PositionBiasDetected  *bool              `json:"position_bias_detected"`
	ReviewerMeanScores    map[string]float64 `json:"reviewer_mean_scores"`
	ReviewerScoreVariance map[string]float64 `json:"reviewer_score_variance"` // population standard deviation, under the seed's name
	HarshReviewers        []string           `json:"harsh_reviewers"`
	GenerousReviewers     []string           `json:"generous_reviewers"`
	// ReviewerEffect is null where scores do not tell reviewers from answers.
	ReviewerEffect *ReviewerEffect `json:"reviewer_effect"`
	// NotJudged says why a flag is null, by "length" or "position".
	NotJudged map[string]string `json:"not_judged"`
	// OverallBiasRisk is "medium" where the flag of positions is up, "low" where it is not and length
	// was judged too, else "indeterminate".
	OverallBiasRisk string       `json:"overall_bias_risk"`
	SampleSizes     AuditSamples `json:"sample_sizes"`
	IndicatorOnly   bool         `json:"indicator_only"` // always true
}

// ReviewerEffect tests whether the reviewers of one session gave different scores
// to the same answers: F of the reviewers in the two-way table of scores, after the
// answers.
type ReviewerEffect struct {
	F      float64 `json:"f"`
	DF     []int   `json:"df"` // of the reviewers, and of what is left
	PValue float64 `json:"p_value"`
}

// BiasIndicators is ADR-018's summary of a BiasAudit.
type BiasIndicators struct {
	PositionVariance  *float64 `json:"position_variance"`
	LengthCorrelation *float64 `json:"length_correlation"` // LengthScoreCorrelation
	ReviewerAgreement *float64 `json:"reviewer_agreement"` // Kendall's W of the ballots
	Flags             []string `json:"flags"`              // LENGTH_ASSOCIATION, POSITION_BIAS_DETECTED
}

// AuditSamples holds the N behind each figure of a BiasAudit.
type AuditSamples struct {
	Answers   int            `json:"answers"`   // scored answers behind the length correlation
	Positions int            `json:"positions"` // positions with a score
	Scores    int            `json:"scores"`    // scores in all
	Reviewers map[string]int `json:"reviewers"` // scores per reviewer
}

// DemographicDisagreement says on which demographic axes the answers of one
// session differ in coverage: some use the axis's terms, others hardly do. It is
// diagnostic only: the difference may be justified, and proves no bias.
type DemographicDisagreement struct {
	Flagged bool              `json:"flagged"` // an axis is flagged
	Axes    []DemographicAxis `json:"axes"`    // every axis of the lexicon, by falling score, then by name
	// BaselineDisagreement is one less the mean Jaccard similarity of the answers'
	// vocabularies over all pairs: 0 for the same words, 1 for no word in common.
	// It is null with fewer than two answers.
	BaselineDisagreement *float64 `json:"baseline_disagreement"`
	Wording              string   `json:"wording"` // the finding in words: also which axes could not be tested
	// Lexicon says whose terms were looked for.
	Lexicon DemographicLexicon `json:"lexicon"`
}

// DemographicLexicon names a list of terms.
type DemographicLexicon struct {
	Language *string `json:"language"` // ISO 639-1; null where the list names none
	Version  string  `json:"version"`  // "councild-1" is the built-in list, "councild-1+X" that list and another one
}

// DemographicAxis is the coverage of one axis. X2, PValue and QValue are null
// where rates were not compared: with fewer than five hits, or fewer than two
// answers that hold words.
type DemographicAxis struct {
	Axis string `json:"axis"`
	// Score is CouncilEx's coverage variance, 0 to 1: four times the population
	// variance of the answers' numbers of distinct terms, each divided by the
	// largest of them. It is null with fewer than two answers.
	Score *float64 `json:"score"`
	// Flagged is true when the score reaches the threshold and the q value is below
	// 0.05.
	Flagged bool `json:"flagged"`
	// Hits are the occurrences of the axis's terms in all answers; those that stand for
	// particular persons of one gender ("he", "my mother") count once an answer.
	Hits     int                   `json:"hits"`
	X2       *float64              `json:"x2"` // Pearson's statistic for one rate of hits per word in all answers
	PValue   *float64              `json:"p_value"`
	QValue   *float64              `json:"q_value"`  // p adjusted over the axes compared (Benjamini and Hochberg 1995)
	Evidence []DemographicEvidence `json:"evidence"` // answers that hold a term, by model
}

// DemographicEvidence is what one answer holds of an axis.
type DemographicEvidence struct {
	Model string   `json:"model"` // member id
	Terms []string `json:"terms"` // distinct, sorted
}

// TotalUsage is a session's usage, summed three ways.
type TotalUsage struct {
	ByStage map[Stage]Usage  `json:"by_stage"`
	ByModel map[string]Usage `json:"by_model"` // without the instance suffix
	Total   Usage            `json:"total"`
	CostUSD *float64         `json:"cost_usd"` // Total's
}

// Timing holds wall times in milliseconds.
type Timing struct {
	Stage1MS float64 `json:"stage1_ms"`
	Stage2MS float64 `json:"stage2_ms"`
	Stage3MS float64 `json:"stage3_ms"`
	TotalMS  float64 `json:"total_ms"`
	// OverheadMS is the total less the slowest call of each stage: the time that councild
	// itself took.
	OverheadMS float64 `json:"overhead_ms"`
}

// Warning is something a reader of the result should know.
type Warning struct {
	Code    WarningCode `json:"code"`
	Message string      `json:"message"`
}

// WarningCode is the closed list of warnings.
type WarningCode string

// The warnings.
const (
	WarnNoRanking      WarningCode = "no_ranking"       // no ballot could be counted
	WarnPartialPolicy  WarningCode = "partial_policy"   // the two policies for partial ballots elect different winners
	WarnPartialBallot  WarningCode = "partial_ballot"   // a ballot leaves out answers
	WarnOneCandidate   WarningCode = "one_candidate"    // a reviewer had one answer to read: nothing to rank
	WarnCostUnknown    WarningCode = "cost_unknown"     // a cost limit is set, but nobody knows what a call cost
	WarnCostUncertain  WarningCode = "cost_uncertain"   // attempts that were cut off or failed count with the most that they can have cost
	WarnCostOverBound  WarningCode = "cost_over_bound"  // a bill was above the most that its request should have cost
	WarnPriceOld       WarningCode = "price_old"        // prices were read more than 45 days ago
	WarnPriceDiffers   WarningCode = "price_differs"    // what a provider charged is not its tokens at the known price
	WarnTokensUnknown  WarningCode = "tokens_unknown"   // a token limit is set, but a provider does not tell the tokens
	WarnNotPersisted   WarningCode = "not_persisted"    // writing the records failed
	WarnNotYetWritten  WarningCode = "not_yet_written"  // the records were still being written when the session ended
	WarnReviewSkipped  WarningCode = "review_skipped"   // there was nothing to compare
	WarnAnswerCutShort WarningCode = "answer_cut_short" // an answer ended at its token limit
	WarnFastestOnly    WarningCode = "fastest_only"     // slow models are missing: only the fastest decided
	WarnOptionLeftOut  WarningCode = "option_left_out"  // models do not take an option that is set: their calls were made without it
	WarnPromptCut      WarningCode = "prompt_cut"       // providers cut the prompts of models without a word
	WarnTakenOver      WarningCode = "taken_over"       // the daemon that ran the session is gone, and another one went on with it
	WarnNoStyle        WarningCode = "no_style"         // an embedding model is set, and how alike the answers are was not measured
	WarnNotKept        WarningCode = "not_kept"         // the session could not be stored to its end: it would not outlive its daemon
	WarnToolsIgnored   WarningCode = "tools_ignored"    // the request offered tools, and a council calls none
	WarnHistoryReduced WarningCode = "history_reduced"  // earlier turns held what a council cannot read
	WarnSideRequest    WarningCode = "side_request"     // one member answered what a chat program asked for itself
	WarnTwinsJudge     WarningCode = "twins_judge"      // seats of one model judge each other: without them, too few ballots would be left
)

// Versions says what produced a session.
type Versions struct {
	Councild      string `json:"councild"`
	CouncilConfig string `json:"council_config"` // council_config_version of the records
	Synthesis     string `json:"synthesis"`      // the version of the chairman's prompt
	RecordSchema  string `json:"record_schema"`
}

// Started is the data of EventStarted.
type Started struct {
	SessionID string   `json:"session_id"`
	Models    []string `json:"models"`
	Reviewers []string `json:"reviewers"`
	Chairman  string   `json:"chairman"`
	Seed      int64    `json:"seed"`
	Order     Order    `json:"order"`
	Versions  Versions `json:"versions"`
}
