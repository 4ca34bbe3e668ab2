package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/councild/councild/internal/anonymize"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/ranking"
)

// keepsRecords reports whether the session leaves records.
func (r *run) keepsRecords() bool { return r.p.o.Recorder != nil && r.plan.Rules.Consent > 0 }

// persist starts a goroutine that appends the session's records when the sides that annotate them are done. The run
// calls endRecords when everything else is done. endRecords waits for the append, at most appendTimeout, and notes the
// outcome in the session. An append that takes longer continues, and the log says how it ends. Its goroutine holds only
// the records, so that the rest of the session can be freed.
func (r *run) persist(ctx context.Context) {
	if !r.keepsRecords() || len(r.session.Stage2) == 0 {
		return
	}
	records, members := r.records()
	sides := r.annotators()
	log := r.log
	appendOnce := r.p.o.Recorder.Append
	if r.p.o.Holds != nil && r.kept != nil && len(r.kept.State.Entries) > 0 {
		p := r.p
		id := records[0].SessionID // It is the id of the session, unless judges read the answers twice.
		created := r.plan.Created
		appendOnce = func(ctx context.Context, records []council.BiasMetricRecord) error {
			if held, err := p.holds(ctx, log, id, created); held || err != nil {
				return err
			}
			return p.o.Recorder.Append(ctx, records)
		}
	}
	count := len(records)
	ctx = context.WithoutCancel(ctx)
	done := make(chan error, 1)
	go func() { // It ends when Append returns, at the latest soon after the Recorder is closed.
		sides.annotate(records, members)
		var err error
		if failure := protect(log, func() { err = appendOnce(ctx, records) }); failure != nil {
			err = failure
		}
		done <- err
	}()
	failed := func(err error) {
		log.ErrorContext(ctx, "the session's records were not written", "error", err, "records", count)
	}
	r.endAppend = func() {
		r.awaitAnnotations()
		select {
		case err := <-done:
			if err != nil {
				failed(err)
				r.warn(council.WarnNotPersisted,
					"writing the session's records failed: the log says why; the record store tries again while it has room for them")
				return
			}
			r.session.Persisted = true
		case <-time.After(appendTimeout):
			log.WarnContext(ctx, "the session's records are not written yet", "records", count)
			r.warn(
				council.WarnNotYetWritten,
				"the session's records are not written yet: this is still tried, and the log says how it ends",
			)
			go func() {
				if err := <-done; err != nil {
					failed(err)
					return
				}
				log.InfoContext(ctx, "the session's records were written after it had ended", "records", count)
			}()
		}
	}
}

// endRecords waits for the append of the records, if persist has started one.
func (r *run) endRecords() {
	if r.endAppend != nil {
		r.endAppend()
	}
}

// The pauses between two calls of Options.Holds double from the first to the longest.
const (
	minHoldsPause = 100 * time.Millisecond
	maxHoldsPause = 10 * time.Second
)

// holds reports whether the Recorder holds records of a session that was taken over. After an error it asks again,
// until the Recorder is closed. It must not guess: records that are not appended are lost, and records that are
// appended twice count twice.
func (p *Pipeline) holds(ctx context.Context, log *slog.Logger, id string, created time.Time) (bool, error) {
	for pause := minHoldsPause; ; pause = min(2*pause, maxHoldsPause) {
		held, err := p.o.Holds(ctx, id, created)
		if err == nil || errors.Is(err, fs.ErrClosed) {
			return held, err
		}
		if pause == minHoldsPause {
			log.WarnContext(
				ctx, "the session's records wait: it cannot be told whether an earlier daemon has written them", "error", err,
			)
		}
		time.Sleep(pause)
	}
}

// records returns one record for each candidate on the slate of each reviewer. The result members has the ids of the
// reviewer and the candidate of each record.
func (r *run) records() (records []council.BiasMetricRecord, members [][2]string) {
	metadata := r.queryMetadata()
	lengths := r.lengths()
	spent := map[string]council.Spent{} // what each answer consumed, keyed by author
	for _, a := range r.session.Stage1 {
		spent[a.Model] = a.Spent
	}
	queryHash := r.queryHash()
	questionKey := r.questionKey()
	identify := r.identities()
	records = make([]council.BiasMetricRecord, 0, shown(r.session.Stage2))
	members = make([][2]string, 0, cap(records))
	for i, v := range r.session.Stage2 {
		reviewer, reviewerMaker := identify(v.Model)
		status := ballotStatus(v)
		scores := scoresOf(v)
		ranks := ranking.RankValues(r.votes[v.Model])
		for position, shown := range v.Slate {
			model, maker := identify(shown.Member)
			members = append(members, [2]string{v.Model, shown.Member})
			records = append(records, council.BiasMetricRecord{
				SchemaVersion: council.RecordSchema, SessionID: r.session.ID, Timestamp: r.plan.Created,
				ConsentLevel: r.plan.Rules.Consent, Mode: r.plan.Mode,
				QueryMetadata: metadata, ReviewerID: reviewer, ModelID: model, Position: &position,
				ResponseLengthChars: lengths[shown.Member], ScoreValue: find(scores, shown.Label), ScoreScale: council.ScoreScale,
				CouncilConfig: r.plan.Versions.CouncilConfig, QueryHash: queryHash, QuestionKey: questionKey,
				Own: r.twins.Own(v.Model, shown.Member), NShown: len(v.Slate), OrderDesign: r.plan.Order,
				RankValue: find(ranks, shown.Member), Status: status,
				Provider: council.ProviderPair{Reviewer: reviewerMaker, Candidate: maker}, BlockID: r.block,
				ModelVersions:           council.VersionPair{Reviewer: v.ModelVersion, Candidate: spent[shown.Member].ModelVersion},
				ResponseReasoningTokens: spent[shown.Member].Usage.ReasoningTokens,
			})
			if r.plan.Mode == council.ModeJudge {
				r.judged(&records[len(records)-1], i < len(r.readers()))
				continue
			}
			if r.plan.CouncilName != "" {
				records[len(records)-1].RosterIDs = &council.SeatPair{Reviewer: v.Model, Candidate: shown.Member}
			}
		}
	}
	return records, members
}

// judged completes a record of an answer that was given to judges. Readings of the same answers in two orders are two
// sessions of one block, as in a probe. The argument first says that the record is from the first reading.
func (r *run) judged(record *council.BiasMetricRecord, first bool) {
	record.Source = council.SourceJudge
	if !r.plan.Stage(council.KindReviews).Twice {
		return
	}
	record.BlockID = &r.session.ID
	record.SessionID = r.session.ID + "-2"
	if first {
		record.SessionID = r.session.ID + "-1"
	}
}

// lengths returns how many characters each answer has, by member.
func (r *run) lengths() map[string]int {
	lengths := make(map[string]int, len(r.answers))
	for member, text := range r.answers {
		lengths[member] = utf8.RuneCountInString(text)
	}
	return lengths
}

// identities returns a function that takes the id of a member or reviewer. The function returns the identity of this
// member or reviewer in records, and the maker of its model. The identity is the model, so that records from before and
// after the move to a roster belong together. If a model has several seats, the identities of its further seats end in
// "#2", "#3" and so on.
func (r *run) identities() func(id string) (identity, maker string) {
	if r.plan.Mode == council.ModeJudge {
		return r.judgedIdentities()
	}
	if r.plan.CouncilName == "" { // without a roster, the ids are the identities
		return func(id string) (string, string) { return id, council.Maker(id, r.plan.Rules.Providers) }
	}
	identities := map[string]string{}
	makers := map[string]string{}
	count := map[string]int{}
	for _, m := range slices.Concat(r.plan.Members(), r.plan.Reviewers()) {
		if identities[m.ID] != "" {
			continue
		}
		count[m.Model]++
		identities[m.ID] = m.Model
		if n := count[m.Model]; n > 1 {
			identities[m.ID] = fmt.Sprintf("%s#%d", m.Model, n)
		}
		makers[m.ID] = cmp.Or(m.Maker, council.Maker(m.Model, r.plan.Rules.Providers))
	}
	return func(id string) (string, string) { return identities[id], makers[id] }
}

// judgedIdentities does the same as identities, for answers that were given to judges. Their identities are their
// authors. If an author has several answers, the identities of its further answers end in "#2", "#3" and so on.
func (r *run) judgedIdentities() func(id string) (identity, maker string) {
	identities := map[string]string{}
	makers := map[string]string{}
	count := map[string]int{}
	for _, m := range r.plan.Members() {
		author := cmp.Or(m.Model, council.Unnamed)
		count[author]++
		identities[m.ID] = seatID(author, count[author])
		makers[m.ID] = council.Maker(m.Model, r.plan.Rules.Providers)
	}
	for _, m := range r.plan.Reviewers() {
		identities[m.ID] = m.Model
		makers[m.ID] = cmp.Or(m.Maker, council.Maker(m.Model, r.plan.Rules.Providers))
	}
	return func(id string) (string, string) { return identities[id], makers[id] }
}

// find returns the value of a key, or nil.
func find[K comparable, V any](m map[K]V, key K) *V {
	if v, ok := m[key]; ok {
		return &v
	}
	return nil
}

// ballotStatus returns the status of a review in records.
func ballotStatus(v council.Review) council.BallotStatus {
	switch {
	case v.Error != nil && v.Error.Code == council.FailCut:
		return council.BallotCut
	case v.Status == council.OutcomeOK && v.ParsedRanking.Partial(len(v.Slate)):
		return council.BallotPartial
	default:
		return council.BallotStatus(v.Status) // Each outcome of a review is a ballot status too.
	}
}

func (r *run) queryMetadata() council.QueryMetadata {
	return council.QueryMetadata{
		Category: optional(r.plan.Category), Language: optional(r.plan.Language), TokenCountBucket: r.tokenBucket(),
	}
}

// tokenBucket returns the size class of the question in prompt tokens. The count comes from the first member, in
// configured order, whose provider reports it. The result is nil if no provider reports it.
func (r *run) tokenBucket() *string {
	for _, a := range r.session.Stage1 {
		if a.Status == council.OutcomeOK && a.Usage.InputTokens != nil {
			return new(council.TokenBucket(*a.Usage.InputTokens))
		}
	}
	return nil
}

// queryHash returns 16 hex digits of an HMAC-SHA-256 over the whole question, so that records of the same question can
// be recognised. It is nil below consent level 4 of ADR-018. It is also nil if this process continues the session of
// another process and has no hash secret.
func (r *run) queryHash() *string {
	if r.plan.Rules.Consent < 4 || r.p.o.HashSecret == "" {
		return nil
	}
	return new(anonymize.KeyedHash(r.p.o.HashSecret, r.plan.Question()))
}

// questionKey returns a hash like queryHash, but at every consent level, and keyed with the secret of the record store.
// It is nil while that secret is not known.
func (r *run) questionKey() *string {
	if r.p.o.QuestionSecret == nil {
		return nil
	}
	secret := r.p.o.QuestionSecret()
	if secret == "" {
		return nil
	}
	return new(anonymize.KeyedHash(secret, r.plan.Question()))
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
