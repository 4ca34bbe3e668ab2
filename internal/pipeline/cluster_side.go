package pipeline

import (
	"context"
	"sync"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/disagreement"
)

// clusters reports whether the answers are to be embedded to say whether those that lie together cover an axis alike.
func (r *run) clusters() bool {
	return r.plan.Rules.ClusterRule != "" && len(r.authors) >= council.MinClustered
}

// clusterSide says whether the answers that lie together cover an axis alike, where the plan asks for it. The
// embeddings are those of alike, so that they are paid for once. Terms are counted beside the reviewers. finish, at
// the end of the session, cuts off embeddings that are not there by then, so that nobody waits for them, and puts what
// was found into the session.
func (r *run) clusterSide(ctx context.Context, alike *style) (finish func()) {
	rules := r.plan.Rules
	if rules.ClusterRule == "" {
		return func() {}
	}
	in := disagreement.Input{
		Question: r.plan.Question(), Answers: r.answers, Matcher: r.p.o.Terms, Threshold: rules.LexiconLimit, Seed: r.plan.Seed,
	}
	var coverage *disagreement.Coverage
	var wg sync.WaitGroup
	if rules.ClusterRule == disagreement.ClusterRule && in.Matcher != nil {
		wg.Go(func() {
			_ = protect(r.log, func() { coverage = disagreement.Cover(ctx, in) }) // a defect is logged, and nothing is flagged
		})
	}
	return func() {
		wg.Wait()
		lexical := r.session.Metadata.DemographicDisagreement
		if coverage == nil || lexical == nil {
			r.session.Metadata.DemographicClustering = &council.DemographicClustering{
				Reason: new("not tested: the session ended before, or this daemon has another version of the rule, or no lexicon"),
				Axes:   []council.ClusteredAxis{}, Model: rules.EmbeddingModel, Rule: rules.ClusterRule, Usage: council.NoUsage(),
			}
			return
		}
		e := disagreement.Embedded{
			Model: rules.EmbeddingModel, Usage: council.NoUsage(), Calibration: r.calibration(ctx, in.Instrument(rules.EmbeddingModel)),
		}
		if r.clusters() {
			alike.stop()
			e.Missing = alike.missing
			e.Usage = alike.usage
			if alike.cosines != nil {
				e.Cosine = func(a, b string) float64 { return alike.cosines[[2]string{a, b}] }
			}
		}
		r.session.Metadata.DemographicClustering = new(coverage.Cluster(*lexical, e))
	}
}
