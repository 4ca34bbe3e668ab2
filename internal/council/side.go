package council

import "context"

// The stages of the calls of sides. Each is named after its side.
const (
	StageEmbedding Stage = "embedding" // a model embeds the answers
	StageRater     Stage = "judge"     // a model rates how the answers differ
)

// SidePlan is what a plan says of one side: of work that looks at the answers while the council goes on. It holds
// everything that the work depends on, so that another process can go on with it.
type SidePlan struct {
	// Name is the name of the [Side] that does the work. It is the stage of its calls too.
	Name string `json:"name"`
	// Version is the version of the side's prompt or rule. A process that has another one does not apply its own.
	Version string `json:"version,omitempty"`
	// Member is the model that the side calls. The zero value stands for a side that calls none.
	Member Member `json:"member"`
	// Seats holds one name for each call that the side makes when nothing fails.
	Seats []string `json:"seats"`
	// EmbedBytes is the most bytes of the texts of a call, if the calls ask for embeddings. It is 0 if they ask for
	// completions, with prompts as long as those of reviewers.
	EmbedBytes int64 `json:"embed_bytes,omitempty"`
	// MoneyEnd is the share of the session's limits, 0 to 1, up to which the side may spend.
	MoneyEnd float64 `json:"money_end,omitempty"`
	// Refused says why the model must not see the answers: then there are no Seats. It is empty if the model may.
	Refused string `json:"refused,omitempty"`
	// MarkerKey makes the markers of the side's prompts, as Plan.MarkerKey makes those of the stages.
	MarkerKey string `json:"marker_key,omitempty"`
	// Tally says that the finding is a part of the session's tally: the end of stage 2 waits for it.
	Tally bool `json:"tally,omitempty"`
	// Records says that the finding annotates the session's records, which wait for it for two seconds at most.
	Records bool `json:"records,omitempty"`
	// Threshold is the score, 0 to 1, from which the side may flag something.
	Threshold float64 `json:"threshold,omitempty"`
	// Axes are the demographic axes on which the answers are rated.
	Axes []string `json:"axes"`
}

// Side looks at the answers of a session while the council goes on. It never delays the session by more than SidePlan
// says, and never changes the result of the council. Sides are safe for concurrent use.
type Side interface {
	// Name returns the name of the side. No two sides of a process share one.
	Name() string
	// Plan returns what the plan of a session says of the side, or nil if the side does not look at such a session.
	Plan(plan Plan) *SidePlan
	// Look looks at the answers, until ctx ends. It returns nil if there is nothing to say.
	Look(ctx context.Context, in Seen, calls Completer) Finding
	// Missing returns the finding of a side that could not look, for the reason given.
	Missing(side SidePlan, reason string) Finding
}

// Seen is what a side looks at.
type Seen struct {
	Plan    Plan              // of the session
	Side    SidePlan          // the part of the plan that is about this side
	Authors []string          // the ids of the members that answered, in configured order
	Answers map[string]string // by author
	// Yield waits until the reviews are paid for. Its error says why the side must not call a model at all: half of a
	// limit is spent, or the session has ended. Nil stands for work that need not wait.
	Yield func(ctx context.Context) error
}

// Finding is what a side found.
type Finding interface {
	// AddTo puts the finding into its session.
	AddTo(s *Session)
}

// Annotator is a Finding that also completes records.
type Annotator interface {
	// Annotate completes the record of a reviewer, by its member id, on the answer of an author.
	Annotate(r *BiasMetricRecord, reviewer, author string)
}

// IsSide reports whether the calls of the stage are those of a side.
func (s Stage) IsSide() bool {
	switch s {
	case Stage1, Stage2, Stage3, StageShadow:
		return false
	default:
		return true
	}
}
