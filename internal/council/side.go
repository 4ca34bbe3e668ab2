package council

import "context"

// The stages in which sides make calls. Each is named after its side.
const (
	StageEmbedding Stage = "embedding" // a model embeds the answers
	StageRater     Stage = "judge"     // a model rates how the answers differ
)

// SidePlan is the part of a plan for one [Side]. It holds everything that the work of the side depends on, so that
// another process can continue it.
type SidePlan struct {
	// Name is the name of the [Side] that does the work. It is the stage of its calls too.
	Name string `json:"name"`
	// Version is the version of the side's prompt or rule. A process that has another version of the side does not use
	// that version for this plan.
	Version string `json:"version,omitempty"`
	// Member is the model that the side calls. It has the zero value if the side makes no calls.
	Member Member `json:"member"`
	// Seats holds one name for each call that the side makes if no call fails.
	Seats []string `json:"seats"`
	// EmbedBytes limits the bytes of the texts in a call for embeddings. It is 0 if the side asks for completions. The
	// side's prompts are then as long as the prompts of reviewers.
	EmbedBytes int64 `json:"embed_bytes,omitempty"`
	// MoneyEnd is a share of the session's limits, 0 to 1. The side may spend until that share of a limit is spent.
	MoneyEnd float64 `json:"money_end,omitempty"`
	// Refused says why the model must not see the answers. There are then no Seats. It is "" if the model may see them.
	Refused string `json:"refused,omitempty"`
	// MarkerKey is the secret for the markers in the side's prompts, as Plan.MarkerKey is for the prompts of the
	// stages.
	MarkerKey string `json:"marker_key,omitempty"`
	// Tally says that the finding is a part of the session's tally. The end of stage 2 then waits for the side.
	Tally bool `json:"tally,omitempty"`
	// Records says that the finding annotates the session's records. At its end, the session then waits at most two
	// seconds for the side.
	Records bool `json:"records,omitempty"`
	// Threshold is the score, 0 to 1, from which the side may flag an axis.
	Threshold float64 `json:"threshold,omitempty"`
	// Axes are the demographic axes on which the answers are rated.
	Axes []string `json:"axes"`
}

// Side is an analysis that looks at the answers of a session while the council continues. It delays the session only as
// its SidePlan says, and never changes the result of the council. Sides are safe for concurrent use.
type Side interface {
	// Name returns the name of the side. All sides of a process have different names.
	Name() string
	// Plan returns the part of a session's plan for this side, or nil if the side does not look at such a session.
	Plan(plan Plan) *SidePlan
	// Look looks at the answers, until ctx ends. It returns nil if it finds nothing.
	Look(ctx context.Context, in Seen, calls Completer) Finding
	// Missing returns the finding of a side that could not look, for the reason given.
	Missing(side SidePlan, reason string) Finding
}

// Seen is the input of a side.
type Seen struct {
	Plan    Plan              // the plan of the session
	Side    SidePlan          // the part of the plan for this side
	Authors []string          // the ids of the members that answered, in configured order
	Answers map[string]string // by author
	// Yield waits until the side cannot take money from the reviews. If the session has a limit of cost or tokens,
	// Yield waits until all reviews are done. Without such a limit, it waits for the first review only. Its error says
	// why the side must not call a model at all: at least half of a limit is spent, or ctx has ended. If Yield is nil,
	// the side need not wait.
	Yield func(ctx context.Context) error
}

// Finding is the result of a side.
type Finding interface {
	// AddTo puts the finding into its session.
	AddTo(s *Session)
}

// Annotator is a Finding that also completes records.
type Annotator interface {
	// Annotate completes the record of a reviewer and an author. Both are given by their member ids.
	Annotate(r *BiasMetricRecord, reviewer, author string)
}

// IsSide reports whether a side makes the calls of the stage.
func (s Stage) IsSide() bool {
	switch s {
	case Stage1, Stage2, Stage3, StageShadow, StageVotes:
		return false
	default:
		return true
	}
}
