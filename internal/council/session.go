package council

import (
	"encoding/json"
	"slices"
	"time"
)

// Status says how far a session is, and how it ended.
type Status string

// The states of a session.
const (
	StatusRunning   Status = "running"
	StatusComplete  Status = "complete"
	StatusDegraded  Status = "degraded"
	StatusFailed    Status = "failed"
	StatusCancelled Status = "cancelled"
)

// Session is one run of a council from question to answer. POST /v1/council returns it.
type Session struct {
	ID      string    `json:"session_id"`
	Status  Status    `json:"status"`
	Created time.Time `json:"created"`
	Query   string    `json:"query"`          // the beginning of the question, see Plan.Preview
	Council string    `json:"council"`        // the name of the council, DefaultCouncil without a roster
	User    string    `json:"user,omitempty"` // the caller's name for the person that asks
	Turn
	Mode   Mode   `json:"mode"` // "" in sessions of older versions
	Answer string `json:"answer"`
	// AnswerFrom says where Answer comes from. Its rule is "" in sessions of older versions.
	AnswerFrom AnswerFrom `json:"answer_from"`
	// Note is for people who read only the answer. It says on one line what is missing from a degraded session, and who
	// wrote the answer. It is "" if nothing important is missing, if the answer is JSON, or if notes are switched off.
	Note        string        `json:"note,omitempty"`
	Persisted   bool          `json:"persisted"` // true if the records are kept, see Fsync
	Degradation []Degradation `json:"degradation"`
	Stage1      []Answer      `json:"stage1"` // in the order of the members
	Stage2      []Review      `json:"stage2"` // in the order of the reviewers
	Stage3      *Synthesis    `json:"stage3"`
	// Rubric has the statements of a rubric, on which judges vote, in the order of Votes.
	Rubric []string `json:"rubric,omitempty"`
	// Votes has an element for each question of a stage of KindVotes.
	Votes []VoteCount `json:"votes,omitempty"`
	// Task is the result of the plan's Task. Stage1 and Stage2 then have the replies of its rounds.
	Task     *TaskResult `json:"task,omitempty"`
	Metadata Metadata    `json:"metadata"`
}

// Degradation is one thing that is missing from a session, and why.
type Degradation struct {
	Stage   Stage       `json:"stage"`
	Model   string      `json:"model"`
	Code    FailureCode `json:"code"`
	Message string      `json:"message"`
}

// Spent is the time, the requests and the usage of one seat's calls.
type Spent struct {
	LatencyMS float64 `json:"latency_ms"` // the wall time of all attempts
	Attempts  int     `json:"attempts"`   // how many requests were sent
	Usage     Usage   `json:"usage"`
	// ModelVersion is the provider's name for the model in the reply that counts. It is often more exact than the name in
	// the request, but may be the same. It is nil if no reply counts, or if the reply names no model.
	ModelVersion *string `json:"model_version"`
	// LeftOut holds options that are set but that the model does not take, by their names in requests. The requests
	// were sent without these options.
	LeftOut []string `json:"left_out,omitempty"`
	// PromptCut says that the provider reports far fewer input tokens than the prompt must have. The provider has cut the
	// prompt without an error.
	PromptCut bool `json:"prompt_cut,omitempty"`
}

// Add adds the Spent of further calls. It does not change ModelVersion, because only the caller knows which reply
// counts.
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

// The outcomes of a seat. Abstained and invalid exist only in stage 2, and fallback only in stage 3.
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
	Reasoning    *string `json:"reasoning"` // as in Completion, null if there is none
	FinishReason *string `json:"finish_reason"`
	Spent
	Error *Failure `json:"error"`
	// Given says that the answer comes from an earlier session, which has paid for it.
	Given bool `json:"given,omitempty"`
}

// Review is a reviewer's reply to its slate, with the ballot that was read from it.
type Review struct {
	Model        string         `json:"model"`
	Status       Outcome        `json:"status"`
	LabelToModel map[Label]Seat `json:"label_to_model"`
	Ranking      *string        `json:"ranking"` // the reply without its thinking
	// Repair is the reply to the repair call, null if there was none. Repaired says that ParsedRanking was read from
	// Repair.
	Repair        *string `json:"repair"`
	Repaired      bool    `json:"repaired"`
	ParsedRanking *Ballot `json:"parsed_ranking"`
	Reasoning     *string `json:"reasoning"` // the thinking of Ranking, null if there is none
	FinishReason  *string `json:"finish_reason"`
	Spent
	Error *Failure `json:"error"`

	Slate Slate `json:"-"` // has the same labels as LabelToModel
}

// Fallback says which text took the place of the chairman's synthesis.
type Fallback string

// The fallbacks, in the order in which they are tried.
const (
	FallbackSecondChairman Fallback = "second_chairman" // another model wrote the synthesis
	FallbackTopRanked      Fallback = "top_ranked"      // the top-ranked answer, unchanged
	FallbackFirstAnswer    Fallback = "first_answer"    // the first answer, because there is no ranking
)

// Synthesis is the final answer and its origin.
type Synthesis struct {
	Model        string    `json:"model"` // the model that wrote the response
	Response     string    `json:"response"`
	Status       Outcome   `json:"status"`    // OutcomeOK or OutcomeFallback
	Fallback     *Fallback `json:"fallback"`  // null if the chairman wrote the response
	Reasoning    *string   `json:"reasoning"` // as in Completion, null if there is none
	FinishReason *string   `json:"finish_reason"`
	// Tail is the text behind the response. Metadata.Map was read from it. It is "" if the chairman wrote nothing
	// behind the response.
	Tail string `json:"tail,omitempty"`
	// Parsed is the response as a JSON value if the caller gave a schema, and otherwise null.
	Parsed *json.RawMessage `json:"parsed"`
	Spent
	Error *Failure `json:"error"` // the chairman's failure, null if the chairman wrote the response
}

// AnswerDelta is a piece of a member's answer as it arrives. The pieces of one member since
// its last AnswerRestart add up to Answer.Response, or to the beginning of a reply that
// failed. The Answer replaces all pieces. An answer that was given has no pieces.
type AnswerDelta struct {
	Model string `json:"model"` // the member's id
	Text  string `json:"text"`  // never empty
}

// AnswerRestart voids all AnswerDeltas of one member so far. The member is asked again. With FailThinking, the pieces
// were thinking, and the answer of the same reply follows.
type AnswerRestart struct {
	Model  string      `json:"model"`  // the member's id
	Reason FailureCode `json:"reason"` // why the pieces are void
}

// Delta is a piece of the synthesis as it arrives. The pieces since the last
// Restart add up to Synthesis.Response.
type Delta struct {
	Text string `json:"text"` // never empty
}

// Restart voids all Deltas so far. As a rule, the model that wrote them failed, and another model begins the text
// again. With FailInterrupted, the daemon of the session was gone. Usually the same model then writes the text again.
// With FailThinking, the text was thinking, and the answer of the same model follows. With FailMap, the text ended with
// the map, and the same text follows without the map.
type Restart struct {
	Model  string      `json:"model"`  // the model whose text is void
	Reason FailureCode `json:"reason"` // why the text is void
}

// Metadata is everything about a session besides its texts.
type Metadata struct {
	// LabelToModel says what the labels stand for if all reviewers saw the same slate. Otherwise it is nil, and each
	// review has a map of its own.
	LabelToModel map[Label]Seat `json:"label_to_model"`
	// ReviewerPositionMapping has, by reviewer and member, the 0-based position of the member's answer on the reviewer's
	// slate.
	ReviewerPositionMapping map[string]map[string]int `json:"reviewer_position_mapping"`
	Tally
	// Map says where the answers agree and where they do not. It is null if no map was asked for.
	Map *Map `json:"map"`
	// Stages has the stages that ran, in their order.
	Stages []Stage `json:"stages"`
	// First says what the members that began decided. It is null if all members were asked at once.
	First *FirstAsked `json:"first"`
	// Excluded says which answers a judge was not shown. It is empty if no judge was excluded.
	Excluded []Exclusion `json:"excluded,omitempty"`
	// GivenFrom is the id of the session that has the given answers. It is "" if no answer was given.
	GivenFrom string     `json:"given_from,omitempty"`
	Seed      int64      `json:"seed"`
	Order     Order      `json:"order"`
	Usage     TotalUsage `json:"usage"`
	Timing    Timing     `json:"timing"`
	Warnings  []Warning  `json:"warnings"`
	Versions  Versions   `json:"versions"`
	// DemographicJudgement is the finding of BackendJudge. It is null if that backend is switched off.
	DemographicJudgement *DemographicJudgement `json:"demographic_judgement"`
	// DemographicClustering is the finding of BackendEmbedding. It is null if that backend is switched off.
	DemographicClustering *DemographicClustering `json:"demographic_clustering"`
	// LabelWanted says that people are asked which answer of the session they prefer. Such sessions are drawn at
	// random.
	LabelWanted bool `json:"label_wanted,omitempty"`
}

// Tally is the result of stage 2.
type Tally struct {
	AggregateRankings []Standing `json:"aggregate_rankings"`
	Agreement         Agreement  `json:"agreement"`
	BiasAudit         *BiasAudit `json:"bias_audit"` // null if the audit is switched off
	// BiasIndicators is null if the audit is switched off.
	BiasIndicators *BiasIndicators `json:"bias_indicators"`
	// DemographicDisagreement is null if this comparison is switched off, or was not ready before the end of stage 2.
	DemographicDisagreement *DemographicDisagreement `json:"demographic_disagreement"`
}

// BiasAudit holds the indicators of ADR-015 for one session. One session cannot prove
// a bias. A figure that is undefined is null.
type BiasAudit struct {
	// LengthScoreCorrelation is Pearson's r of the length in characters and the mean score.
	LengthScoreCorrelation *float64 `json:"length_score_correlation"`
	// LengthScoreCILower and LengthScoreCIUpper are the 95 % interval of the correlation
	// (Fisher's z). They are null for fewer than four answers.
	LengthScoreCILower *float64 `json:"length_score_ci_lower"`
	LengthScoreCIUpper *float64 `json:"length_score_ci_upper"`
	LengthScorePValue  *float64 `json:"length_score_p_value"` // exact, from Student's t
	LengthAssociation  *bool    `json:"length_association"`
	// PositionScoreVariance is the population variance of the mean scores of the positions.
	PositionScoreVariance *float64 `json:"position_score_variance"`
	// PositionPValue is the probability of such a variance by chance. It is computed from the variances under other
	// orders that could have been drawn.
	PositionPValue       *float64           `json:"position_p_value"`
	PositionBiasDetected *bool              `json:"position_bias_detected"`
	ReviewerMeanScores   map[string]float64 `json:"reviewer_mean_scores"`
	// ReviewerScoreVariance has, by reviewer, the population standard deviation of the reviewer's scores. It is not a
	// variance. The name comes from the design records.
	ReviewerScoreVariance map[string]float64 `json:"reviewer_score_variance"`
	HarshReviewers        []string           `json:"harsh_reviewers"`
	GenerousReviewers     []string           `json:"generous_reviewers"`
	// ReviewerEffect is null if the scores cannot separate the effect of reviewers from that of answers.
	ReviewerEffect *ReviewerEffect `json:"reviewer_effect"`
	// NotJudged has the reason why a flag is null. Its keys are "length" and "position".
	NotJudged map[string]string `json:"not_judged"`
	// OverallBiasRisk is "medium" if PositionBiasDetected is true. It is "low" if neither flag is null and
	// PositionBiasDetected is false. Otherwise it is "indeterminate".
	OverallBiasRisk string       `json:"overall_bias_risk"`
	SampleSizes     AuditSamples `json:"sample_sizes"`
	IndicatorOnly   bool         `json:"indicator_only"` // always true
}

// ReviewerEffect tests whether the reviewers of one session gave different scores to the same answers. It is an F test
// of the reviewers in the two-way table of scores, adjusted for the answers.
type ReviewerEffect struct {
	F      float64 `json:"f"`
	DF     []int   `json:"df"` // the degrees of freedom of the reviewers and of the residuals
	PValue float64 `json:"p_value"`
}

// BiasIndicators is the summary of a BiasAudit that ADR-018 defines.
type BiasIndicators struct {
	PositionVariance  *float64 `json:"position_variance"`  // BiasAudit.PositionScoreVariance
	LengthCorrelation *float64 `json:"length_correlation"` // BiasAudit.LengthScoreCorrelation
	ReviewerAgreement *float64 `json:"reviewer_agreement"` // Kendall's W of the ballots
	Flags             []string `json:"flags"`              // LENGTH_ASSOCIATION, POSITION_BIAS_DETECTED
}

// AuditSamples holds the sample size of each figure of a BiasAudit.
type AuditSamples struct {
	Answers   int            `json:"answers"`   // how many scored answers the length correlation uses
	Positions int            `json:"positions"` // how many positions have a score
	Scores    int            `json:"scores"`    // how many scores there are in total
	Reviewers map[string]int `json:"reviewers"` // how many scores each reviewer gave
}

// DemographicDisagreement says on which demographic axes the answers of one session differ in coverage. Answers differ
// if some use the terms of an axis and others hardly use these terms. A difference may be justified, and proves no
// bias.
type DemographicDisagreement struct {
	Flagged bool              `json:"flagged"` // true if an axis is flagged
	Axes    []DemographicAxis `json:"axes"`    // all axes of the lexicon, by falling score, then by name
	// BaselineDisagreement is one minus the mean Jaccard similarity of the answers'
	// vocabularies over all pairs. 0 means the same words, and 1 means no word in common.
	// It is null for fewer than two answers.
	BaselineDisagreement *float64 `json:"baseline_disagreement"`
	// Wording is the finding in words. It also says which axes could not be tested.
	Wording string `json:"wording"`
	// Lexicon names the list of terms.
	Lexicon DemographicLexicon `json:"lexicon"`
}

// DemographicLexicon names a list of terms.
type DemographicLexicon struct {
	Language *string `json:"language"` // ISO 639-1, null if the list names no language
	// Version is "councild-1" for the built-in list, and "councild-1+X" for that list together with a list X.
	Version string `json:"version"`
}

// DemographicAxis is the coverage of one axis. X2, PValue and QValue are null if there are fewer than five hits, or
// fewer than two answers that hold words.
type DemographicAxis struct {
	Axis string `json:"axis"`
	// Score is CouncilEx's coverage variance, 0 to 1. Each answer's number of distinct terms is divided by the largest
	// such number. The score is four times the population variance of these shares. It is null for fewer than two answers.
	Score *float64 `json:"score"`
	// Flagged is true if the score reaches the threshold and the q value is below 0.05.
	Flagged bool `json:"flagged"`
	// Hits counts the occurrences of the axis's terms in all answers. Terms for particular persons of one gender ("he",
	// "my mother") count only once in each answer.
	Hits int `json:"hits"`
	// X2 is Pearson's statistic for the hypothesis that all answers have the same rate of hits per word.
	X2     *float64 `json:"x2"`
	PValue *float64 `json:"p_value"`
	// QValue is PValue adjusted over the axes that were compared (Benjamini and Hochberg 1995).
	QValue   *float64              `json:"q_value"`
	Evidence []DemographicEvidence `json:"evidence"` // the answers that hold a term, by model
}

// DemographicEvidence has the terms of an axis that one answer holds.
type DemographicEvidence struct {
	Model string   `json:"model"` // the member's id
	Terms []string `json:"terms"` // distinct and sorted
}

// TotalUsage is the usage of a session, by stage, by model and in total.
type TotalUsage struct {
	ByStage map[Stage]Usage  `json:"by_stage"`
	ByModel map[string]Usage `json:"by_model"` // All seats of a model count together.
	Total   Usage            `json:"total"`
	CostUSD *float64         `json:"cost_usd"` // the same as Total.CostUSD
}

// Timing holds wall times in milliseconds.
type Timing struct {
	Stage1MS float64 `json:"stage1_ms"`
	Stage2MS float64 `json:"stage2_ms"`
	Stage3MS float64 `json:"stage3_ms"`
	TotalMS  float64 `json:"total_ms"`
	// OverheadMS is the time that councild itself took. It is TotalMS minus the slowest call of each stage.
	OverheadMS float64 `json:"overhead_ms"`
}

// Warning tells the reader of a session about a weakness of its result.
type Warning struct {
	Code    WarningCode `json:"code"`
	Message string      `json:"message"`
}

// WarningCode says what a Warning is about. The list of its values is closed.
type WarningCode string

// The warnings.
const (
	WarnNoRanking      WarningCode = "no_ranking"       // no ballot could be counted
	WarnPartialPolicy  WarningCode = "partial_policy"   // the two policies for partial ballots elect different winners
	WarnPartialBallot  WarningCode = "partial_ballot"   // a ballot leaves out answers
	WarnOneCandidate   WarningCode = "one_candidate"    // a reviewer had only one answer to read, and could not rank
	WarnCostUnknown    WarningCode = "cost_unknown"     // a cost limit is set, but the cost of a call is not known
	WarnCostUncertain  WarningCode = "cost_uncertain"   // failed requests count with the most that they can have cost
	WarnCostOverBound  WarningCode = "cost_over_bound"  // a request cost more than its computed maximum
	WarnPriceOld       WarningCode = "price_old"        // prices were read more than 45 days ago
	WarnPriceDiffers   WarningCode = "price_differs"    // a provider's charge differs from the known price of the tokens
	WarnTokensUnknown  WarningCode = "tokens_unknown"   // a token limit is set, but a provider does not report tokens
	WarnNotPersisted   WarningCode = "not_persisted"    // writing the records failed
	WarnNotYetWritten  WarningCode = "not_yet_written"  // the records were still being written when the session ended
	WarnReviewSkipped  WarningCode = "review_skipped"   // there was only one answer, so nothing to compare
	WarnAnswerCutShort WarningCode = "answer_cut_short" // an answer ended at its token limit
	WarnFastestOnly    WarningCode = "fastest_only"     // slow models are missing, so only the fastest decided
	WarnOptionLeftOut  WarningCode = "option_left_out"  // models were asked without a set option that they do not take
	WarnPromptCut      WarningCode = "prompt_cut"       // providers cut the prompts of models without an error
	WarnTakenOver      WarningCode = "taken_over"       // the session's daemon is gone, and another continued the session
	WarnNoStyle        WarningCode = "no_style"         // an embedding model is set, but style similarity was not measured
	WarnNotKept        WarningCode = "not_kept"         // the session was not stored completely, and a crash may lose it
	WarnToolsIgnored   WarningCode = "tools_ignored"    // the request offered tools, and a council calls none
	WarnHistoryReduced WarningCode = "history_reduced"  // earlier turns held content that a council cannot read
	WarnSideRequest    WarningCode = "side_request"     // one member answered a chat program's request for its own use
	WarnAuthorsUnknown WarningCode = "authors_unknown"  // no author of the judged answers is named
	WarnVoteTied       WarningCode = "vote_tied"        // several answers are equally frequent, and the seed drew one
	WarnTwinsJudge     WarningCode = "twins_judge"      // seats of one model judge each other: too few ballots otherwise
)

// Versions has the versions of the program, the council, the prompt and the record schema that produced a session.
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
	Chairman  string   `json:"chairman"` // "" if no chairman writes
	Mode      Mode     `json:"mode"`
	First     int      `json:"first,omitempty"` // Plan.Begin
	Seed      int64    `json:"seed"`
	Order     Order    `json:"order"`
	Versions  Versions `json:"versions"`
}
