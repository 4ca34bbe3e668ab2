package telemetry

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"

	"github.com/councild/councild/internal/council"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"
)

// These attributes have no name in OpenTelemetry's semantic conventions. All other names come from version 1.41.0,
// which is the last version of the package semconv that contains the conventions for generative AI.
const (
	stageKey       = attribute.Key("councild.stage")
	seatKey        = attribute.Key("councild.seat")
	attemptsKey    = attribute.Key("councild.attempts")
	costKey        = attribute.Key("councild.cost_usd") // of a call
	sessionCostKey = attribute.Key("councild.session.cost_usd")
	statusKey      = attribute.Key("councild.status")
	requestIDKey   = attribute.Key("councild.request_id")
	tokenKey       = attribute.Key("councild.token")
	reviewerKey    = attribute.Key("councild.reviewer")
	answerKey      = attribute.Key("councild.answer")
	rankKey        = attribute.Key("councild.rank")
)

// TracedSession traces one session as a tree of spans. The root is the session. Below it are its stages, then their
// calls, then the requests of each call. It is the observer of the session.
type TracedSession struct {
	next   council.Observer // gets all events; it may be nil
	tracer trace.Tracer
	span   trace.Span
	common []attribute.KeyValue // attributes of the session, its stages and its calls

	mu        sync.Mutex // guards the fields below
	stages    map[council.Stage]trace.Span
	responses map[string]string // the response id of each answer, by member
}

type sessionKey struct{}

// Session begins the trace of a session. The returned context belongs to the session's calls. The span of the session
// is a child of the span in ctx. If apart is true, it is the root of a new trace, because the session may outlive the
// request and this process. The root has a link to the request.
func (t *Tracing) Session(
	ctx context.Context, plan council.Plan, apart bool, next council.Observer,
) (context.Context, *TracedSession) {
	s := &TracedSession{next: next, tracer: t.tracer, stages: map[council.Stage]trace.Span{}, responses: map[string]string{}}
	s.common = []attribute.KeyValue{
		semconv.SessionID(plan.SessionID), semconv.GenAIConversationID(cmp.Or(plan.Thread, plan.SessionID)),
	}
	add := func(key attribute.Key, value string) {
		if value != "" {
			s.common = append(s.common, key.String(value))
		}
	}
	add(semconv.EnduserIDKey, plan.User)
	add(tokenKey, plan.Token)
	add(requestIDKey, plan.Origin.RequestID)
	s.common = slices.Clip(s.common)
	options := []trace.SpanStartOption{trace.WithAttributes(append(s.common,
		semconv.GenAIOperationNameInvokeWorkflow, semconv.GenAIWorkflowName(plan.CouncilLabel()))...)}
	if apart {
		options = append(options, trace.WithNewRoot())
		request := propagation.TraceContext{}.Extract(context.Background(),
			propagation.MapCarrier{"traceparent": plan.Origin.Traceparent})
		if linked := trace.SpanContextFromContext(request); linked.IsValid() {
			options = append(options, trace.WithLinks(trace.Link{SpanContext: linked}))
		}
	}
	ctx, s.span = t.tracer.Start(ctx, "invoke_workflow "+plan.CouncilLabel(), options...) //nolint:spancheck // End ends it.
	return context.WithValue(ctx, sessionKey{}, s), s
}

// End ends all spans of the session. Events have usually ended them before.
func (s *TracedSession) End() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, stage := range s.stages {
		stage.End()
	}
	s.span.End()
}

// Observe implements council.Observer.
func (s *TracedSession) Observe(e council.Event) {
	s.note(e)
	if s.next != nil {
		s.next.Observe(e)
	}
}

func (s *TracedSession) note(e council.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e.Type {
	case council.EventStage1:
		s.endLocked(council.Stage1)
	case council.EventStage2:
		s.endLocked(council.Stage2)
	case council.EventStage3:
		s.endLocked(council.Stage3)
	default: // Other events end no stage.
	}
	switch data := e.Data.(type) {
	case council.Review:
		s.evaluateLocked(data)
	case *council.Session:
		s.span.SetAttributes(statusKey.String(string(data.Status)))
		if cost := data.Metadata.Usage.Total.CostUSD; cost != nil {
			s.span.SetAttributes(sessionCostKey.Float64(*cost))
		}
	case *council.Error:
		fail(s.span, string(data.Code))
	}
}

// endLocked ends the span of a stage, if the stage has one. The caller holds mu.
func (s *TracedSession) endLocked(name council.Stage) {
	if stage := s.stages[name]; stage != nil {
		stage.End()
	}
}

// evaluateLocked adds an event to the span of stage 2 for each answer on a ballot, or one event for a ballot that ranks
// no answer. The caller holds mu.
func (s *TracedSession) evaluateLocked(r council.Review) {
	span := s.stages[council.Stage2]
	if span == nil || !span.IsRecording() {
		return
	}
	add := func(more ...attribute.KeyValue) {
		span.AddEvent("gen_ai.evaluation.result", trace.WithAttributes(
			append(more, semconv.GenAIEvaluationName("review"), reviewerKey.String(r.Model))...))
	}
	ballot := r.ParsedRanking
	switch {
	case r.Status == council.OutcomeOK && ballot == nil: // the reply of a task
		return
	case r.Error != nil:
		add(semconv.ErrorTypeKey.String(string(r.Error.Code)))
		return
	case ballot == nil || ballot.Abstained:
		add(semconv.GenAIEvaluationScoreLabel("abstained"))
		return
	}
	ranks := ranksOf(ballot)
	for _, label := range slices.Sorted(maps.Keys(r.LabelToModel)) {
		member := r.LabelToModel[label].Model
		attributes := append(make([]attribute.KeyValue, 0, 7), answerKey.String(member))
		if id := s.responses[member]; id != "" {
			attributes = append(attributes, semconv.GenAIResponseID(id))
		}
		if score, ok := ballot.Scores[label]; ok {
			attributes = append(attributes, semconv.GenAIEvaluationScoreValue(score))
		}
		if rank := ranks[label]; rank > 0 {
			attributes = append(attributes, rankKey.Int(rank),
				semconv.GenAIEvaluationScoreLabel("rank "+strconv.Itoa(rank)+" of "+strconv.Itoa(len(r.LabelToModel))))
		}
		add(attributes...)
	}
}

// ranksOf returns the rank of each label on a ballot, from 1. Tied labels have the best rank of their group.
func ranksOf(b *council.Ballot) map[council.Label]int {
	ranks := map[council.Label]int{}
	for i, label := range b.Ranking {
		ranks[label] = i + 1
	}
	for _, group := range b.Tied {
		best := ranks[group[0]]
		for _, label := range group {
			best = min(best, ranks[label])
		}
		for _, label := range group {
			ranks[label] = best
		}
	}
	return ranks
}

// stage returns a context with the span of a stage. The first call of a stage begins the span. Outside a session, stage
// returns ctx.
func (s *TracedSession) stage(ctx context.Context, name council.Stage) context.Context {
	if s == nil {
		return ctx
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stages[name] == nil {
		_, s.stages[name] = s.tracer.Start(trace.ContextWithSpan(ctx, s.span), string(name), //nolint:spancheck // End ends it.
			trace.WithAttributes(append(s.common, stageKey.String(string(name)))...))
	}
	return trace.ContextWithSpan(ctx, s.stages[name])
}

// answered notes the response id of a member's answer, for the evaluations.
func (s *TracedSession) answered(call *council.Call, id string) {
	if s == nil || call.Stage != council.Stage1 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.responses[call.Seat] = id
}

// Completer returns a council.Completer that passes calls to c and gives each call a span. The span names the provider
// of the model. The argument providers holds the names of all providers.
func (t *Tracing) Completer(c council.Completer, providers []string) council.Completer {
	return &traced{c, t, providers}
}

type traced struct {
	council.Completer
	*Tracing
	providers []string
}

// Complete implements council.Completer. It sets the attributes of a span all at once, when the call has ended, because
// a span copies its attributes each time. The frame of Complete is small, because most goroutines of calls grow their
// stack below it.
func (c *traced) Complete(ctx context.Context, call council.Call) (council.Completion, error) {
	session, _ := ctx.Value(sessionKey{}).(*TracedSession)
	_, model := council.SplitModel(call.Model, c.providers)
	ctx, span := c.tracer.Start(session.stage(ctx, call.Stage), operation(&call).Value.AsString()+" "+model,
		trace.WithSpanKind(trace.SpanKindClient))
	defer span.End()
	if !span.IsRecording() {
		return c.Completer.Complete(ctx, call)
	}
	requests := &requests{tracer: c.tracer, begin: call.Begin}
	call.Begin = requests.Begin
	completion, err := c.Completer.Complete(context.WithValue(ctx, requestsKey{}, requests), call)
	c.describe(span, session, &call, requests, &completion)
	if failure := council.AsFailure(err); failure != nil {
		fail(span, string(failure.Code)) // The message may hold text from the provider.
	}
	return completion, err
}

func operation(call *council.Call) attribute.KeyValue {
	if call.Texts != nil {
		return semconv.GenAIOperationNameEmbeddings
	}
	return semconv.GenAIOperationNameChat
}

// describe sets the attributes of a call's span. Outside a session, s is nil.
func (c *traced) describe(span trace.Span, s *TracedSession, call *council.Call, r *requests, reply *council.Completion) {
	provider, model := council.SplitModel(call.Model, c.providers)
	attributes := make([]attribute.KeyValue, 0, 20) // Few calls have more.
	if s != nil {
		attributes = append(attributes, s.common...)
	}
	attributes = append(attributes, operation(call), semconv.GenAIProviderNameKey.String(cmp.Or(provider, "default")),
		semconv.GenAIRequestModel(model), stageKey.String(string(call.Stage)), seatKey.String(call.Seat))
	if call.Texts == nil {
		attributes = append(attributes, semconv.GenAIRequestStream(call.OnDelta != nil))
	}
	if n := call.Temperature; n != nil {
		attributes = append(attributes, semconv.GenAIRequestTemperature(*n))
	}
	if n := call.MaxOutputTokens; n != nil {
		attributes = append(attributes, semconv.GenAIRequestMaxTokens(*n))
	}
	attributes = append(attributes, attemptsKey.Int(reply.Attempts))
	tokens := func(key attribute.Key, n *int64) {
		if n != nil {
			attributes = append(attributes, key.Int64(*n))
		}
	}
	tokens(semconv.GenAIUsageInputTokensKey, reply.Usage.InputTokens)
	tokens(semconv.GenAIUsageOutputTokensKey, reply.Usage.OutputTokens)
	tokens(semconv.GenAIUsageReasoningOutputTokensKey, reply.Usage.ReasoningTokens)
	if n := r.kinds.CachedInput; n > 0 {
		attributes = append(attributes, semconv.GenAIUsageCacheReadInputTokensKey.Int64(n))
	}
	if n := r.kinds.CacheWrite; n > 0 {
		attributes = append(attributes, semconv.GenAIUsageCacheCreationInputTokensKey.Int64(n))
	}
	if reply.Usage.CostUSD != nil {
		attributes = append(attributes, costKey.Float64(*reply.Usage.CostUSD))
	}
	if reply.ModelVersion != nil {
		attributes = append(attributes, semconv.GenAIResponseModel(*reply.ModelVersion))
	}
	if r.responseID != "" {
		attributes = append(attributes, semconv.GenAIResponseID(r.responseID))
		s.answered(call, r.responseID)
	}
	if reply.FinishReason != "" {
		attributes = append(attributes, semconv.GenAIResponseFinishReasons(reply.FinishReason))
	}
	if c.content && call.Texts == nil {
		attributes = append(attributes, texts(call.Messages, reply)...)
	}
	span.SetAttributes(attributes...)
}

// fail marks a span as failed.
func fail(span trace.Span, code string) {
	span.SetAttributes(semconv.ErrorTypeKey.String(code))
	span.SetStatus(codes.Error, code)
}

// texts returns the messages and the reply of a call, in the JSON of the semantic conventions.
func texts(messages []council.Message, c *council.Completion) []attribute.KeyValue {
	type part struct {
		Type    string `json:"type"`
		Content string `json:"content"`
	}
	type message struct {
		Role   string `json:"role"`
		Parts  []part `json:"parts"`
		Finish string `json:"finish_reason,omitempty"`
	}
	encode := func(key attribute.Key, all []message) attribute.KeyValue {
		text, _ := json.Marshal(all) // Texts can always be encoded.
		return key.String(string(text))
	}
	input := make([]message, len(messages))
	for i, m := range messages {
		input[i] = message{Role: m.Role, Parts: []part{{Type: "text", Content: m.Content}}}
	}
	output := message{Role: string(council.RoleAssistant), Finish: c.FinishReason}
	if c.Reasoning != "" {
		output.Parts = append(output.Parts, part{Type: "reasoning", Content: c.Reasoning})
	}
	output.Parts = append(output.Parts, part{Type: "text", Content: c.Text})
	return []attribute.KeyValue{
		encode(semconv.GenAIInputMessagesKey, input), encode(semconv.GenAIOutputMessagesKey, []message{output}),
	}
}

// requests traces the requests of one call, which follow one another.
type requests struct {
	tracer     trace.Tracer
	begin      func(context.Context, council.Attempt) (council.Receipt, *council.Failure) // of the call; it may be nil
	span       trace.Span                                                                 // of the latest request, or nil
	server     *url.URL                                                                   // of the latest request, or nil
	kinds      council.TokenKinds
	responseID string
}

type requestsKey struct{}

// Begin implements council.Call.Begin.
func (r *requests) Begin(ctx context.Context, a council.Attempt) (council.Receipt, *council.Failure) {
	var receipt council.Receipt
	if r.begin != nil {
		var failure *council.Failure
		if receipt, failure = r.begin(ctx, a); failure != nil {
			return nil, failure
		}
	}
	//nolint:spancheck // Finish ends it.
	_, r.span = r.tracer.Start(ctx, http.MethodPost, trace.WithSpanKind(trace.SpanKindClient))
	r.server = nil
	return &request{Receipt: receipt, all: r, span: r.span, attempt: a}, nil
}

// request is the receipt of one request. It ends the span of the request.
type request struct {
	council.Receipt // may be nil

	all     *requests
	span    trace.Span
	attempt council.Attempt
	done    bool
}

// Finish implements council.Receipt.
func (r *request) Finish(ctx context.Context, c council.Consumed) (costUSD *float64) {
	if !r.done {
		r.done = true
		r.end(c)
	}
	if r.Receipt == nil {
		return nil
	}
	return r.Receipt.Finish(ctx, c)
}

func (r *request) end(c council.Consumed) {
	r.all.kinds.CachedInput += c.Kinds.CachedInput
	r.all.kinds.CacheWrite += c.Kinds.CacheWrite
	r.all.responseID = c.ResponseID
	attributes := append(make([]attribute.KeyValue, 0, 6), semconv.HTTPRequestMethodPost,
		semconv.HTTPRequestBodySize(int(r.attempt.Bytes)), semconv.HTTPRequestResendCount(r.attempt.Number-1))
	if to := r.all.server; to != nil {
		attributes = append(attributes, semconv.ServerAddress(to.Hostname()), semconv.ServerPort(port(to)))
	}
	if c.Status > 0 {
		attributes = append(attributes, semconv.HTTPResponseStatusCode(c.Status))
	}
	r.span.SetAttributes(attributes...)
	if c.Failure != nil {
		fail(r.span, string(c.Failure.Code))
	}
	r.span.End()
}

// Inject adds the header traceparent (W3C Trace Context) to a request to a model. The header names the span of the
// request. Inject also notes the request's server for this span.
func (t *Tracing) Inject(r *http.Request) {
	ctx := r.Context()
	if of, ok := ctx.Value(requestsKey{}).(*requests); ok && of.span != nil {
		ctx = trace.ContextWithSpan(ctx, of.span)
		of.server = r.URL
	}
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(r.Header))
}

// port returns the port of a server.
func port(u *url.URL) int {
	if n, err := strconv.Atoi(u.Port()); err == nil {
		return n
	}
	if u.Scheme == "https" {
		return 443
	}
	return 80
}
