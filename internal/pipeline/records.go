package pipeline

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/councild/councild/internal/bias"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/ranking"
	"github.com/councild/councild/internal/stage2"
)

// vote returns a counted ballot in terms of members.
func vote(v council.Review) ranking.Vote {
	who := make(map[council.Label]string, len(v.Slate))
	shown := make([]string, len(v.Slate))
	for i, s := range v.Slate {
		who[s.Label], shown[i] = s.Member, s.Member
	}
	groups := v.ParsedRanking.Groups()
	places := make([][]string, len(groups))
	for i, group := range groups {
		for _, label := range group {
			places[i] = append(places[i], who[label])
		}
	}
	return ranking.Vote{Reviewer: v.Model, Shown: shown, Places: places}
}

// votes returns the ballots that count.
func (r *run) votes() []ranking.Vote {
	var votes []ranking.Vote
	for _, v := range r.session.Stage2 {
		if v.Status == council.OutcomeOK {
			votes = append(votes, vote(v))
		}
	}
	return votes
}

// asked returns how many reviewers were asked to review each candidate, its own
// author not counted.
func (r *run) asked() map[string]int {
	asked := map[string]int{}
	for _, v := range r.session.Stage2 {
		for _, s := range v.Slate {
			if s.Member != v.Model {
				asked[s.Member]++
			}
		}
	}
	return asked
}

// persist appends the session's records beside what follows. The returned function
// is called when everything else is done: it waits for the records at most
// appendTimeout more, and notes the outcome in the session. Records that take
// longer are not given up: the log says in the end what became of them. What waits
// that long holds the records and nothing else of the session.
func (r *run) persist(ctx context.Context) (wait func()) {
	if r.p.o.Recorder == nil || r.p.o.Consent == 0 || len(r.session.Stage2) == 0 {
		return func() {}
	}
	records, recorder, log := r.records(), r.p.o.Recorder, r.log()
	count := len(records)
	ctx = context.WithoutCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- appended(ctx, recorder, records, log) }() // the Recorder ends it, by closing at the latest
	failed := func(err error) {
		log.ErrorContext(ctx, "the session's records were not written", "error", err, "records", count)
	}
	return func() {
		timer := time.NewTimer(appendTimeout)
		defer timer.Stop()
		select {
		case err := <-done:
			if err != nil {
				failed(err)
				r.warn(council.WarnNotPersisted,
					"writing the session's records failed: the log says why; the record store tries again while it has room for them")
				return
			}
			r.session.Persisted = true
		case <-timer.C:
			log.WarnContext(ctx, "the session's records are not written yet", "records", count)
			r.warn(council.WarnNotYetWritten, "the session's records are not written yet: the record store still tries, and the log says how it ends")
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

// appended appends the records. A panic becomes an error.
func appended(ctx context.Context, recorder Recorder, records []council.BiasMetricRecord, log *slog.Logger) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = panicked(log, v)
		}
	}()
	return recorder.Append(ctx, records)
}

// records returns one record for every reviewer asked and candidate on its slate.
func (r *run) records() []council.BiasMetricRecord {
	providers := r.p.o.Providers
	metadata := council.QueryMetadata{
		Category: optional(r.plan.Category), Language: optional(r.plan.Language), TokenCountBucket: r.tokenBucket(),
	}
	lengths := map[string]int{} // of the answers, in characters
	for member, text := range r.answers {
		lengths[member] = utf8.RuneCountInString(text)
	}
	queryHash := r.queryHash()
	var records []council.BiasMetricRecord
	for _, v := range r.session.Stage2 {
		status := ballotStatus(v)
		var ranks map[string]float64
		if v.Status == council.OutcomeOK {
			ranks = ranking.RankValues(vote(v))
		}
		for position, shown := range v.Slate {
			record := council.BiasMetricRecord{
				SchemaVersion: council.RecordSchema, SessionID: r.session.ID, Timestamp: r.start.UTC(), ConsentLevel: r.p.o.Consent,
				QueryMetadata: metadata, ReviewerID: v.Model, ModelID: shown.Member, Position: &position,
				ResponseLengthChars: lengths[shown.Member], ScoreScale: council.ScoreScale,
				CouncilConfig: r.p.o.ConfigVersion, QueryHash: queryHash,
				Own: shown.Member == v.Model, NShown: len(v.Slate), OrderDesign: r.plan.Order, Status: status,
				Provider: council.ProviderPair{Reviewer: council.Maker(v.Model, providers), Candidate: council.Maker(shown.Member, providers)},
				BlockID:  r.block,
			}
			if v.Status == council.OutcomeOK {
				if score, ok := v.ParsedRanking.Scores[shown.Label]; ok {
					record.ScoreValue = &score
				}
				if rank, ok := ranks[shown.Member]; ok {
					record.RankValue = &rank
				}
			}
			records = append(records, record)
		}
	}
	return records
}

func ballotStatus(v council.Review) council.BallotStatus {
	switch v.Status {
	case council.OutcomeOK:
		if stage2.Partial(*v.ParsedRanking, v.Slate.Labels()) {
			return council.BallotPartial
		}
		return council.BallotOK
	case council.OutcomeAbstained:
		return council.BallotAbstained
	case council.OutcomeInvalid:
		return council.BallotInvalid
	default:
		if v.Error.Code == council.FailCut {
			return council.BallotCut
		}
		return council.BallotError
	}
}

// tokenBucket sizes the question by the prompt tokens that a provider counted:
// the first member's, in configured order, that tells them.
func (r *run) tokenBucket() *string {
	for _, a := range r.session.Stage1 {
		if a.Status == council.OutcomeOK && a.Usage.InputTokens != nil {
			return new(council.TokenBucket(*a.Usage.InputTokens))
		}
	}
	return nil
}

// queryHash lets sessions with the same question be recognised, at ADR-018's
// consent level 4 only: 16 hex digits of an HMAC-SHA-256 over the whole question.
func (r *run) queryHash() *string {
	if r.p.o.Consent < 4 {
		return nil
	}
	mac := hmac.New(sha256.New, []byte(r.p.o.HashSecret))
	mac.Write([]byte(r.plan.Question()))
	return new(hex.EncodeToString(mac.Sum(nil))[:16])
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// auditInput hands the session's scores to the audit.
func (r *run) auditInput() bias.AuditInput {
	in := bias.AuditInput{Order: r.plan.Order, Thresholds: *r.p.o.Audit, Words: map[string]int{}}
	for member, text := range r.answers {
		in.Words[member] = len(strings.Fields(text))
	}
	for _, v := range r.session.Stage2 {
		if v.Status != council.OutcomeOK {
			continue
		}
		for position, shown := range v.Slate {
			if score, ok := v.ParsedRanking.Scores[shown.Label]; ok {
				in.Scores = append(in.Scores, bias.Score{
					Reviewer: v.Model, Candidate: shown.Member, Position: position, Own: shown.Member == v.Model, Value: score,
				})
			}
		}
	}
	return in
}
