package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"maps"
	"net/http"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/councild/councild"
	"github.com/councild/councild/internal/bias"
	consent "github.com/councild/councild/internal/consent"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/doors/httpapi"
	"github.com/councild/councild/internal/doors/openai"
	"github.com/councild/councild/internal/gate"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/render"
	"github.com/councild/councild/internal/sessions/journal"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/spend"
	"github.com/councild/councild/internal/stat"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/worth"
	"github.com/getkin/kin-openapi/openapi3"
	"github.com/go-chi/chi/v5"
	"github.com/google/go-cmp/cmp"
)

// contract loads openapi.yaml with its open lists closed: clients must accept values beyond a list, but the daemon must
// not send any.
func contract(t *testing.T) *openapi3.T {
	t.Helper()
	return loadContract(t, bytes.ReplaceAll(councild.OpenAPI, []byte("x-extensible-enum:"), []byte("enum:")))
}

func loadContract(t *testing.T, text []byte) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return doc
}

func TestContractHasTheRoutes(t *testing.T) {
	var want, got []string
	for path, item := range contract(t).Paths.Map() {
		for method := range item.Operations() {
			want = append(want, method+" "+path)
		}
	}
	err := chi.Walk(start(t, nil).API.Routes(), func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		got = append(got, method+" "+strings.Replace(route, "/*", "/{id}", 1))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	served, data := start(t, nil).Call(t, "GET", "/openapi.yaml", "")
	if string(data) != string(councild.OpenAPI) || served.Header.Get("Content-Type") != "application/yaml" {
		t.Error("the contract served is another")
	}
}

// A later version may send a new value without breaking a client: no schema of an answer or a webhook has a closed list
// of several values.
func TestContractIsOpen(t *testing.T) {
	seen := map[*openapi3.Schema]bool{}
	var visit func(path string, ref *openapi3.SchemaRef)
	visit = func(path string, ref *openapi3.SchemaRef) {
		if ref == nil || seen[ref.Value] {
			return
		}
		schema := ref.Value
		seen[schema] = true
		if len(schema.Enum) > 1 {
			t.Errorf("%s: a closed list; clients could not accept new values: write x-extensible-enum", path)
		}
		for _, named := range []openapi3.Schemas{schema.Properties, schema.Defs} {
			for name, property := range named {
				visit(path+"."+name, property)
			}
		}
		for _, alternative := range slices.Concat(schema.AnyOf, schema.OneOf, schema.AllOf) {
			visit(path, alternative)
		}
		visit(path+"[]", schema.Items)
		visit(path+"{}", schema.AdditionalProperties.Schema)
	}
	doc := loadContract(t, councild.OpenAPI)
	visit("webhook", webhookBody(doc))
	for path, item := range doc.Paths.Map() {
		for method, operation := range item.Operations() {
			for status, response := range operation.Responses.Map() {
				for _, media := range response.Value.Content {
					visit(method+" "+path+" "+status, media.Schema)
				}
			}
		}
	}
	if len(seen) < 500 {
		t.Errorf("looked at %d schemas only", len(seen))
	}
}

// twoAnswers is a body of POST /v1/disagreement whose report has nothing empty, and byJudge and byEmbedding are ones
// that count as a session.
const (
	compared   = `"question":"Why?","answers":[{"id":"a","text":"Women, women, women, women, women."},{"id":"b","text":"Rain."}]}`
	twoAnswers = "{" + compared
	byJudge    = `{"backend":"llm_judge",` + compared

	byEmbedding = `{"backend":"embedding",` + compared
)

// schemas are the Go types behind the schemas of the contract.
var schemas = map[string]reflect.Type{
	"Request": reflect.TypeFor[council.Submission](), "Message": reflect.TypeFor[council.Message](),
	"Session": reflect.TypeFor[council.Session](), "Degradation": reflect.TypeFor[council.Degradation](),
	"Failure": reflect.TypeFor[council.Failure](), "Usage": reflect.TypeFor[council.Usage](),
	"Answer": reflect.TypeFor[council.Answer](), "Review": reflect.TypeFor[council.Review](),
	"LabelToModel": reflect.TypeFor[map[council.Label]council.Seat](), "Seat": reflect.TypeFor[council.Seat](),
	"Ballot": reflect.TypeFor[council.Ballot](), "Synthesis": reflect.TypeFor[council.Synthesis](),
	"Metadata": reflect.TypeFor[council.Metadata](), "Standing": reflect.TypeFor[council.Standing](),
	"Agreement": reflect.TypeFor[council.Agreement](), "Support": reflect.TypeFor[council.Support](),
	"Omission":  reflect.TypeFor[council.Omission](),
	"BiasAudit": reflect.TypeFor[council.BiasAudit](), "ReviewerEffect": reflect.TypeFor[council.ReviewerEffect](),
	"BiasIndicators":          reflect.TypeFor[council.BiasIndicators](),
	"DemographicDisagreement": reflect.TypeFor[council.DemographicDisagreement](),
	"DemographicAxis":         reflect.TypeFor[council.DemographicAxis](),
	"DemographicEvidence":     reflect.TypeFor[council.DemographicEvidence](),
	"Disagreement":            reflect.TypeFor[council.DisagreementRequest](),
	"ComparedAnswer":          reflect.TypeFor[council.ComparedAnswer](),
	"DisagreementReport":      reflect.TypeFor[council.DisagreementReport](),
	"DemographicClustering":   reflect.TypeFor[council.DemographicClustering](),
	"ClusteredAxis":           reflect.TypeFor[council.ClusteredAxis](),
	"DemographicJudgement":    reflect.TypeFor[council.DemographicJudgement](),
	"JudgedAxis":              reflect.TypeFor[council.JudgedAxis](),
	"JudgedQuote":             reflect.TypeFor[council.JudgedQuote](),
	"Calibration":             reflect.TypeFor[council.Calibration](),
	"DemographicLexicon":      reflect.TypeFor[council.DemographicLexicon](),
	"AuditSamples":            reflect.TypeFor[council.AuditSamples](), "TotalUsage": reflect.TypeFor[council.TotalUsage](),
	"Timing": reflect.TypeFor[council.Timing](), "Warning": reflect.TypeFor[council.Warning](),
	"Versions": reflect.TypeFor[council.Versions](), "FieldError": reflect.TypeFor[council.FieldError](),
	"Order": reflect.TypeFor[council.Order](), "Stage": reflect.TypeFor[council.Stage](),
	"FailureCode": reflect.TypeFor[council.FailureCode](),
	"Evidence":    reflect.TypeFor[render.CouncilEvidence](), "Shadow": reflect.TypeFor[worth.Shadow](),
	"ShadowReviewer": reflect.TypeFor[worth.ShadowReviewer](), "Share": reflect.TypeFor[worth.Share](),
	"EqualShare": reflect.TypeFor[worth.EqualShare](), "People": reflect.TypeFor[worth.People](), "PPI": reflect.TypeFor[worth.PPI](),
	"Unasked": reflect.TypeFor[worth.Unasked](), "PeopleAgreements": reflect.TypeFor[worth.Agreements](),
	"PeopleAgreement": reflect.TypeFor[worth.Agreement](), "ReviewerAgreement": reflect.TypeFor[worth.AgreementOfReviewer](),
	"Preference": reflect.TypeFor[worth.Preference](),
	"Report":     reflect.TypeFor[render.FullReport](), "Window": reflect.TypeFor[bias.Window](), "Skipped": reflect.TypeFor[bias.Skipped](),
	"ReportSummary": reflect.TypeFor[bias.Summary](), "ReportQuestion": reflect.TypeFor[bias.Question](),
	"Levels": reflect.TypeFor[bias.Levels](), "NotMeasured": reflect.TypeFor[bias.NotMeasured](), "Test": reflect.TypeFor[bias.Test](),
	"Metric": reflect.TypeFor[bias.Metric](), "Profile": reflect.TypeFor[bias.Profile](),
	"Position": reflect.TypeFor[bias.Position](), "ModelPosition": reflect.TypeFor[bias.ModelPosition](),
	"SeriesPoint": reflect.TypeFor[bias.SeriesPoint](), "SeriesValue": reflect.TypeFor[bias.SeriesValue](),
	"Split": reflect.TypeFor[bias.Split](), "SplitMean": reflect.TypeFor[bias.SplitMean](),
	"Estimate": reflect.TypeFor[stat.Estimate](), "Prior": reflect.TypeFor[bias.Prior](),
	"ChangePoint": reflect.TypeFor[bias.ChangePoint](), "Alongside": reflect.TypeFor[bias.Alongside](),
	"PairJudge": reflect.TypeFor[bias.PairJudge](), "Accuracy": reflect.TypeFor[bias.Accuracy](),
	"Anomalies": reflect.TypeFor[bias.Anomalies](), "Anomaly": reflect.TypeFor[bias.Anomaly](),
	"Calibrated":  reflect.TypeFor[bias.Calibrated](),
	"Leaderboard": reflect.TypeFor[bias.Leaderboard](), "Board": reflect.TypeFor[bias.Board](), "Category": reflect.TypeFor[bias.Category](),
	"VersionChange": reflect.TypeFor[bias.VersionChange](), "Filter": reflect.TypeFor[bias.Filter](), "Repeats": reflect.TypeFor[bias.Repeats](),
	"Entry":  reflect.TypeFor[bias.LeaderboardEntry](),
	"Reason": reflect.TypeFor[httpapi.Reason](), "Health": reflect.TypeFor[httpapi.Health](),
	"Readiness": reflect.TypeFor[httpapi.Readiness](),
	"Problem":   reflect.TypeFor[council.Problem](), "SessionList": reflect.TypeFor[httpapi.SessionList](),
	"Summary": reflect.TypeFor[council.Summary](), "Renaming": reflect.TypeFor[council.Renaming](),
	"Feedback": reflect.TypeFor[council.Feedback](), "Kept": reflect.TypeFor[council.Kept](),
	"EventBatch": reflect.TypeFor[httpapi.EventBatch](), "Event": reflect.TypeFor[consent.Event](), "EventRanking": reflect.TypeFor[consent.Ranking](),
	"Taken": reflect.TypeFor[consent.Taken](), "Receipt": reflect.TypeFor[consent.Receipt](),
	"EventBoard": reflect.TypeFor[consent.Board](), "EventModelRow": reflect.TypeFor[consent.ModelRow](),
	"EventMetricRow": reflect.TypeFor[consent.MetricRow](),
	"Started":        reflect.TypeFor[council.Started](), "Delta": reflect.TypeFor[council.Delta](), "Restart": reflect.TypeFor[council.Restart](),
	"AnswerDelta": reflect.TypeFor[council.AnswerDelta](), "AnswerRestart": reflect.TypeFor[council.AnswerRestart](),
	"Map": reflect.TypeFor[council.Map](), "Claim": reflect.TypeFor[council.Claim](),
	"Tally": reflect.TypeFor[council.Tally](), "ModelList": reflect.TypeFor[openai.ModelList](),
	"ModelCard": reflect.TypeFor[openai.ModelCard](),
	"Chat":      reflect.TypeFor[openai.Chat](), "ChatChoice": reflect.TypeFor[openai.ChatChoice](),
	"ChatAnswer": reflect.TypeFor[openai.ChatAnswer](),
	"ChatDelta":  reflect.TypeFor[openai.ChatDelta](), "ChatUsage": reflect.TypeFor[openai.ChatUsage](),
	"ChatCouncil": reflect.TypeFor[openai.ChatCouncil](),
	"ChatError":   reflect.TypeFor[httpapi.ChatError](), "OpenAIError": reflect.TypeFor[council.OpenAIError](),
	"Response": reflect.TypeFor[openai.Response](), "ResponseMessage": reflect.TypeFor[openai.ResponseMessage](),
	"ResponsePart": reflect.TypeFor[openai.ResponsePart](), "ResponseUsage": reflect.TypeFor[openai.ResponseUsage](),
	"VoteCount": reflect.TypeFor[council.VoteCount](), "Criterion": reflect.TypeFor[council.Criterion](), "Decision": reflect.TypeFor[openai.Decision](),
	"DecisionAnswer":        reflect.TypeFor[openai.DecisionAnswer](),
	"DecisionProbability":   reflect.TypeFor[openai.DecisionProbability](),
	"DecisionVotes":         reflect.TypeFor[openai.DecisionVotes](),
	"DecisionUsage":         reflect.TypeFor[openai.DecisionUsage](),
	"DecisionInputDetails":  reflect.TypeFor[openai.DecisionInputDetails](),
	"DecisionOutputDetails": reflect.TypeFor[openai.DecisionOutputDetails](),
	"DecisionCouncil":       reflect.TypeFor[openai.DecisionCouncil](),
	"ResponseError":         reflect.TypeFor[openai.ResponseError](),
	"ResponseIncompletion":  reflect.TypeFor[openai.ResponseIncompletion](),
	"ResponseText":          reflect.TypeFor[openai.ResponseText](), "TextFormat": reflect.TypeFor[openai.TextFormat](),
	"ResponseDeletion": reflect.TypeFor[openai.ResponseDeletion](), "ResponseItems": reflect.TypeFor[openai.ResponseItems](),
	"ResponseInputItem": reflect.TypeFor[openai.ResponseInputItem](), "ResponseInputPart": reflect.TypeFor[openai.ResponseInputPart](),
	"InputDetails": reflect.TypeFor[openai.InputDetails](), "OutputDetails": reflect.TypeFor[openai.OutputDetails](),
	"CouncilList": reflect.TypeFor[httpapi.CouncilList](), "CouncilCard": reflect.TypeFor[httpapi.CouncilCard](),
	"Lately": reflect.TypeFor[httpapi.Lately](), "Demo": reflect.TypeFor[httpapi.Demo](),
	"SessionCost": reflect.TypeFor[spend.SessionCost](),
	"Spend":       reflect.TypeFor[spend.Costs](), "SpendRow": reflect.TypeFor[spend.Row](), "Limit": reflect.TypeFor[spend.Limit](),
	"Ledger": reflect.TypeFor[spend.State](), "LedgerReason": reflect.TypeFor[spend.Skipped](), "Acceptance": reflect.TypeFor[spend.Acceptance](),
	"Mode": reflect.TypeFor[council.Mode](), "AnswerForm": reflect.TypeFor[council.AnswerForm](),
	"AnswerFrom": reflect.TypeFor[council.AnswerFrom](), "FirstAsked": reflect.TypeFor[council.FirstAsked](),
	"JudgeRequest": reflect.TypeFor[council.JudgeSubmission](), "JudgeAnswer": reflect.TypeFor[council.JudgeAnswer](),
	"Judgement": reflect.TypeFor[council.Judgement](), "Verdict": reflect.TypeFor[council.Verdict](),
	"JudgedAnswer": reflect.TypeFor[council.JudgedAnswer](), "JudgeBallot": reflect.TypeFor[council.JudgeBallot](),
	"JudgeReading": reflect.TypeFor[council.JudgeReading](), "Exclusion": reflect.TypeFor[council.Exclusion](),
	"GateRequest": reflect.TypeFor[gate.Submission](), "GateIgnored": reflect.TypeFor[gate.Ignored](),
	"GateReport": reflect.TypeFor[gate.Report](), "GateLeftOut": reflect.TypeFor[gate.LeftOut](),
	"GateMember": reflect.TypeFor[gate.MemberReport](), "GateFinding": reflect.TypeFor[gate.Finding](),
	"GateVote": reflect.TypeFor[gate.Vote](), "GateWording": reflect.TypeFor[gate.Wording](),
	"TaskResult":   reflect.TypeFor[council.TaskResult](),
	"Convening":    reflect.TypeFor[httpapi.Convening](),
	"CostEstimate": reflect.TypeFor[spend.Estimate](), "EstimatePart": reflect.TypeFor[spend.Figure](),
}

// nilLists are lists that are null if they are nil. All other lists are never nil.
var nilLists = map[string]bool{"Map.agreed": true, "Map.disputed": true, "Map.only_one_said": true, "Map.open": true}

// subsets are string types of which one field uses only some values.
var subsets = map[string]bool{
	"ChangePoint.verdict": true, "Answer.status": true, "Review.status": true, "Synthesis.status": true, "JudgeReading.status": true,
	"webhook.data.status": true,
}

// Every schema is exactly what encoding/json makes of its Go type, both ways:
// names, types, what may be null, what may be missing, and the closed lists.
func TestContractHasTheStructs(t *testing.T) {
	doc := contract(t)
	constants := stringConstants(t, "../../council", "../../bias", "../../spend", "../../worth", "../../consent", "../../gate")
	if diff := cmp.Diff(slices.Sorted(maps.Keys(schemas)), slices.Sorted(maps.Keys(doc.Components.Schemas))); diff != "" {
		t.Fatalf("schemas and types: %s", diff)
	}
	names := map[reflect.Type]string{}
	for name, typ := range schemas {
		names[typ] = name
	}
	for name, typ := range schemas {
		c := comparison{t: t, names: names, constants: constants}
		c.value(name, typ, &openapi3.SchemaRef{Value: doc.Components.Schemas[name].Value}, true)
	}
	// The schema of the webhook has no name, because oapi-codegen does not generate the schemas that only a webhook uses.
	c := comparison{t: t, names: names, constants: constants}
	c.value("webhook", reflect.TypeFor[consent.SessionFinished](), webhookBody(doc), true)
}

// webhookBody returns the schema of the body of the webhook.
func webhookBody(doc *openapi3.T) *openapi3.SchemaRef {
	return doc.Webhooks[consent.TypeSessionFinished].Post.RequestBody.Value.Content["application/json"].Schema
}

type comparison struct {
	t         *testing.T
	names     map[reflect.Type]string // types with a schema of their own
	constants map[string][]string     // values of string types, by package and name
}

// value compares the schema at path with a type. A type with a schema of its own
// must be referred to by it, unless that schema itself is looked at.
func (c comparison) value(path string, typ reflect.Type, ref *openapi3.SchemaRef, top bool) {
	nullable := typ.Kind() == reflect.Pointer
	if nullable {
		typ = typ.Elem()
	}
	if name, ok := c.names[typ]; ok && !top {
		want := "#/components/schemas/" + name
		anyOf := len(ref.Value.AnyOf) == 2 && ref.Value.AnyOf[0].Ref == want && ref.Value.AnyOf[1].Value.Type.Is("null")
		switch {
		case nullable && !anyOf:
			c.t.Errorf("%s: want anyOf %s and null", path, want)
		case !nullable && ref.Ref != want && (typ.Kind() != reflect.Map || !anyOf): // a map is null where it is nil
			c.t.Errorf("%s: want a reference to %s, got %q", path, want, ref.Ref)
		}
		return
	}
	if typ == reflect.TypeFor[json.RawMessage]() {
		return // any JSON, as the caller's own schema has it
	}
	schema := ref.Value
	want := []string{jsonType(typ)}
	if nullable || nilLists[path] {
		want = append(want, "null")
	}
	if diff := cmp.Diff(want, schema.Type.Slice()); diff != "" {
		c.t.Errorf("%s: type %s", path, diff)
	}
	switch {
	case typ == reflect.TypeFor[time.Time]():
		if schema.Format != "date-time" {
			c.t.Errorf("%s: format %q", path, schema.Format)
		}
	case typ.Kind() == reflect.String && typ.Name() != "string":
		c.enum(path, typ, schema, nullable)
	case typ.Kind() == reflect.Slice:
		c.value(path+"[]", typ.Elem(), schema.Items, false)
	case typ.Kind() == reflect.Map:
		c.value(path+"{}", typ.Elem(), schema.AdditionalProperties.Schema, false)
	case typ.Kind() == reflect.Struct:
		c.structure(path, typ, schema)
	}
}

func (c comparison) enum(path string, typ reflect.Type, schema *openapi3.Schema, nullable bool) {
	want := slices.Clone(c.constants[typ.String()])
	if len(want) == 0 {
		return // an open type, such as a label
	}
	var got []string
	null := false
	for _, v := range schema.Enum {
		if text, ok := v.(string); ok {
			got = append(got, text)
		} else {
			null = true
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if subsets[path] {
		want = slices.DeleteFunc(want, func(v string) bool { return !slices.Contains(got, v) })
	}
	if diff := cmp.Diff(want, got); diff != "" || null != nullable {
		c.t.Errorf("%s: enum, null %v: %s", path, null, diff)
	}
}

func (c comparison) structure(path string, typ reflect.Type, schema *openapi3.Schema) {
	var fields, required []string
	var walk func(reflect.Type)
	walk = func(typ reflect.Type) {
		for f := range typ.Fields() {
			if f.Anonymous {
				walk(f.Type)
				continue
			}
			name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "-" || !f.IsExported() {
				continue
			}
			fields = append(fields, name)
			optional := options == "omitempty" || options == "omitzero"
			if !optional {
				required = append(required, name)
			}
			property := schema.Properties[name]
			if property == nil {
				c.t.Errorf("%s.%s: not in the contract", path, name)
				continue
			}
			field := f.Type
			if optional && field.Kind() == reflect.Pointer {
				field = field.Elem() // missing, not null
			}
			c.value(path+"."+name, field, property, false)
		}
	}
	walk(typ)
	if path == "Request" || path == "Message" {
		required = schema.Required // what must be there is decided by Prepare
	}
	slices.Sort(fields)
	slices.Sort(required)
	if diff := cmp.Diff(fields, slices.Sorted(maps.Keys(schema.Properties))); diff != "" {
		c.t.Errorf("%s: fields: %s", path, diff)
	}
	if diff := cmp.Diff(required, slices.Sorted(slices.Values(schema.Required))); diff != "" {
		c.t.Errorf("%s: required: %s", path, diff)
	}
	if schema.AdditionalProperties.Has == nil || *schema.AdditionalProperties.Has {
		c.t.Errorf("%s: additionalProperties is not false", path)
	}
}

func jsonType(typ reflect.Type) string {
	if typ == reflect.TypeFor[spend.USD]() { // as its MarshalJSON writes it
		return "number"
	}
	switch typ.Kind() {
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	case reflect.Int, reflect.Int64:
		return "integer"
	case reflect.Float64:
		return "number"
	case reflect.Slice, reflect.Array:
		return "array"
	case reflect.Struct:
		if typ == reflect.TypeFor[time.Time]() {
			return "string"
		}
		return "object"
	case reflect.Map:
		return "object"
	default:
		return "unknown"
	}
}

// stringConstants reads the values of every named string type from the source.
func stringConstants(t *testing.T, dirs ...string) map[string][]string {
	t.Helper()
	values := map[string][]string{}
	for _, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(parsed, func(n ast.Node) bool {
				spec, ok := n.(*ast.ValueSpec)
				if !ok || len(spec.Values) != 1 {
					return true
				}
				typ, ok := spec.Type.(*ast.Ident)
				literal, isLiteral := spec.Values[0].(*ast.BasicLit)
				if ok && isLiteral && literal.Kind == token.STRING {
					value, err := strconv.Unquote(literal.Value)
					if err != nil {
						t.Fatal(err)
					}
					name := parsed.Name.Name + "." + typ.Name
					values[name] = append(values[name], value)
				}
				return true
			})
		}
	}
	if len(values["council.FailureCode"]) < 20 {
		t.Fatalf("found %d failure codes", len(values["council.FailureCode"]))
	}
	return values
}

// moody is a Council that panics when the test says so.
type moody struct{ httpapi.Council }

func (m moody) PrepareJudge(r council.JudgeRequest) (council.Plan, error) {
	if r.Question == "panic" {
		panic("asked to")
	}
	return m.Council.PrepareJudge(r)
}

func (m moody) PrepareTask(r council.TaskRequest) (council.Plan, error) {
	if r.Council == "panic" {
		panic("asked to")
	}
	return m.Council.PrepareTask(r)
}

func (m moody) Prepare(r council.Request) (council.Plan, error) {
	if r.Query == "panic" || len(r.Messages) > 0 && r.Messages[0].Content == "panic" {
		panic("asked to")
	}
	return m.Council.Prepare(r)
}

// fullReport is a report in which nothing is empty.
func fullReport(bias.Query) (bias.Report, error) {
	return manySessions().Report(context.Background()), nil
}

// fullEvidence is evidence in which nothing is empty.
func fullEvidence(bias.Query) (*render.CouncilEvidence, error) {
	var shadows []council.ShadowRecord
	var labels []council.LabelRecord
	for i := range 120 {
		synthesis, at, choice := "synthesis", time.Now(), council.ChoiceSynthesis
		if i%3 == 0 {
			synthesis, choice = "b", council.ChoiceTop
		}
		shadows = append(shadows, council.ShadowRecord{
			SessionID: strconv.Itoa(i), Timestamp: at, Wanted: i < 60, Chairman: "a", TopModel: "b",
			Lengths:   council.ShadowLengths{Synthesis: 100 + i, Top: 100},
			Reviewers: []council.ShadowReview{{ID: "c", First: council.ChoiceTop, Choice: &choice, Status: council.OutcomeOK}},
		})
		labels = append(labels, council.LabelRecord{
			Timestamp: at, Labelled: at, Wanted: i < 60, Chairman: new("a"), TopModel: new("b"), Borda: map[string]float64{"b": 1, "d": 0},
			Kept:    council.Kept{SessionID: strconv.Itoa(i), Preferred: &synthesis, Over: []string{"synthesis", "b", "d"}, Rating: new(3), By: "x"},
			Ballots: []council.LabelBallot{{ID: "c", Places: map[string]int{"b": 0, "d": 1}}},
		})
	}
	e := &render.CouncilEvidence{Evidence: worth.Weigh(shadows, labels)}
	e.Skipped = []bias.Skipped{{Reason: "not_json", Count: 1, FirstFile: new("evidence.jsonl"), FirstLine: new(int64(1))}}
	if p := e.People; p.Powered == nil || p.Agreement.Borda == nil || p.Dominant == nil || len(p.Unasked.Agreement.Reviewers) == 0 {
		return nil, errors.New("something is missing")
	}
	return e, nil
}

func fullLeaderboard(bias.Query) (bias.Leaderboard, error) {
	return manySessions().Leaderboard(council.PolicyAvailable), nil
}

func manySessions() *bias.Collector {
	now := time.Now()
	c := bias.NewCollector(bias.Options{Now: now})
	c.Skip("records.jsonl", 3, "not_json", 1)
	for i := range 60 {
		for j := range 3 {
			c.Add(council.BiasMetricRecord{
				SessionID: strconv.Itoa(i), Timestamp: now.Add(-time.Hour), ReviewerID: "r" + strconv.Itoa(j%2),
				ModelID:  "c" + strconv.Itoa(j),
				Position: &j, ResponseLengthChars: 100 * (i + j), ScoreValue: new(float64(1 + (i*j)%10)), ScoreScale: "1-10",
				NShown: 3, RankValue: new(float64(j)), QueryMetadata: council.QueryMetadata{Category: new("math")},
			})
		}
	}
	return c
}

// Every status that the contract documents for a route is produced here, with a
// body that the contract describes.
func TestContractHasTheStatuses(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	const perMinute = 60 // sessions, more than the rows take
	doc, labels, intake := contract(t), &fakeLabels{key: "s3cret"}, openIntake(t)
	s := start(t, []simllm.Model{
		{Name: "down", Faults: []simllm.Fault{{Kind: simllm.FaultStatus, Rate: 1}}},
		{Name: "hang", Faults: []simllm.Fault{{Kind: simllm.FaultHang, Rate: 1}}},
	}, func(o *httpapi.Options, p *pipeline.Options) {
		o.Tokens = limited(httpapi.Limits{PerMinute: new(perMinute)}, secret)
		o.Models = p.Models
		o.Labels = labels
		o.Intake = intake
		p.Timeout = 5 * time.Second
		inner, err := pipeline.New(*p)
		if err != nil {
			t.Fatal(err)
		}
		o.Council = moody{inner}
	})
	auth := []string{"Authorization", "Bearer " + secret}
	type call struct {
		method, path, body string
		headers            []string
		id                 func() string // what stands for {id} or {name}; nil: nothing that there is
		prepare            func()
		send               func() (*http.Response, []byte) // nil: once, with the body
	}
	inBackground := func(models string) string {
		_, data := s.Call(t, "POST", "/v1/council", `{"query":"x","background":true,"models":`+models+`}`, auth...)
		var started council.Summary
		if err := json.Unmarshal(data, &started); err != nil {
			t.Fatal(err)
		}
		return started.ID
	}
	over := func(models string) func() string {
		return sync.OnceValue(func() string {
			id := inBackground(models)
			s.Call(t, "GET", "/v1/council/"+id+"/events", "", auth...)
			return id
		})
	}
	completion := func(model, text string) string {
		return fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":%q}]}`, model, text)
	}
	chat := func(body string, headers ...string) call {
		return call{method: "POST", path: "/v1/chat/completions", body: body, headers: headers}
	}
	response := func(model, text string) string { return fmt.Sprintf(`{"model":%q,"input":%q}`, model, text) }
	respond := func(body string, headers ...string) call {
		return call{method: "POST", path: "/v1/responses", body: body, headers: headers}
	}
	elsewhere := append([]string{"Origin", "https://elsewhere.example"}, auth...)
	ofResponse := func(method, route string, id func() string, headers ...string) call {
		c := call{method: method, path: "/v1/responses/{id}" + route, headers: headers}
		if id != nil {
			c.id = func() string { return "resp_" + id() }
		}
		return c
	}
	answered := over(`["amber","birch","cedar"]`)
	inTheBackground := sync.OnceValue(func() string { return inBackground(`["hang","hang"]`) })
	inTheForeground := func() string {
		go s.Call(t, "POST", "/v1/responses", response("council/hang,hang", "in the foreground"), auth...)
		for {
			var list httpapi.SessionList
			_, data := s.Call(t, "GET", "/v1/council?status=running&q=foreground", "", auth...)
			if err := json.Unmarshal(data, &list); err != nil {
				t.Fatal(err)
			}
			if len(list.Sessions) > 0 {
				return list.Sessions[0].ID
			}
		}
	}
	decision := func(model, text string) string {
		return fmt.Sprintf(`{"model":%q,"input":%q,"questions":[{"type":"predicate","instructions":"It is true."},`+
			`{"type":"choice","choices":[{"value":"a"},{"value":true}]},{"type":"score","levels":[{"label":"a"},{"label":"b"}]}]}`, model, text)
	}
	decide := func(body string, headers ...string) call {
		return call{method: "POST", path: "/v1/decisions", body: body, headers: headers}
	}
	tooMany := func(method, path, body string) (*http.Response, []byte) { // of one caller's reports
		begun, release := make(chan struct{}), make(chan struct{})
		s.Daemon.Reports = func(bias.Query) (bias.Report, error) {
			begun <- struct{}{}
			<-release
			return bias.Report{}, nil
		}
		var reports sync.WaitGroup
		for range 4 {
			reports.Go(func() { s.Call(t, "GET", "/v1/bias-report", "", auth...) })
		}
		for range 4 {
			<-begun
		}
		defer reports.Wait()
		defer close(release)
		return s.Call(t, method, path, body, auth...)
	}
	notWritable := func(method, body string) (*http.Response, []byte) { // where the session is kept
		log := slog.New(slog.DiscardHandler)
		j, err := journal.Open(t.Context(), journal.Options{
			Dir: t.TempDir(), MaxBytes: 1 << 20, Prefix: "council", Node: "node", Replicas: 1, Lease: time.Minute, Log: log,
		})
		if err != nil {
			t.Fatal(err)
		}
		s := start(t, nil, func(o *httpapi.Options, _ *pipeline.Options) {
			o.Kept.Journal, o.Kept.Node, o.Kept.Log = j, "node", log
		})
		id := s.background(t, `"query":"x"`)
		s.Watch(t, id)
		if err := errors.Join(j.Close(t.Context()), s.API.Close(t.Context())); err != nil {
			t.Fatal(err)
		}
		return s.Call(t, method, "/v1/council/"+id, body)
	}
	overLimit := func(path, body string) (resp *http.Response, data []byte) {
		for range 2 * perMinute {
			if resp, data = s.Call(t, "POST", path, body, auth...); resp.StatusCode == http.StatusTooManyRequests {
				break
			}
		}
		return resp, data
	}
	finished, failed := over(`["amber","birch","cedar"]`), over(`["down","down"]`)
	hanging := sync.OnceValue(func() string { return inBackground(`["hang","hang"]`) })
	ready := func() {
		s.Daemon.Reasons, s.Daemon.Reports, s.Daemon.Evidences, s.Daemon.Boards = nil, nil, nil, nil
		s.Daemon.Drains.Store(false)
		s.Daemon.SpendFails.Store(false)
		labels.err, intake.err = nil, nil
	}
	feedback := func(id func() string, body string, headers ...string) call {
		return call{method: "POST", path: "/v1/council/{id}/feedback", body: body, headers: headers, id: id}
	}
	rename := func(id func() string, body string, headers ...string) call {
		return call{method: "PATCH", path: "/v1/council/{id}", body: body, headers: headers, id: id}
	}
	stalledName := rename(finished, "", auth...)
	stalledName.send = func() (*http.Response, []byte) {
		return s.Stalled(t, "PATCH", "/v1/council/"+finished(), auth...)
	}
	unwritableName := rename(nil, "")
	unwritableName.send = func() (*http.Response, []byte) { return notWritable("PATCH", `{"title":"x"}`) }
	settled := func(models string) func() string { // a session that its first member decided
		return sync.OnceValue(func() string {
			_, data := s.Call(t, "POST", "/v1/council", `{"query":"x","first":1,"timeout_seconds":2,"models":`+models+`}`, auth...)
			var session council.Session
			if err := json.Unmarshal(data, &session); err != nil {
				t.Fatal(err)
			}
			return session.ID
		})
	}
	convene := func(id func() string, body string, headers ...string) call {
		return call{method: "POST", path: "/v1/council/{id}/convene", body: body, headers: headers, id: id}
	}
	judge := func(body string, headers ...string) call {
		return call{method: "POST", path: "/v1/judge", body: body, headers: headers}
	}
	judgedPair := sync.OnceValue(func() string {
		_, data := s.Call(t, "POST", "/v1/judge", pairBody, auth...)
		var j council.Judgement
		if err := json.Unmarshal(data, &j); err != nil {
			t.Fatal(err)
		}
		return j.SessionID
	})
	gateCall := func(body string, headers ...string) call {
		return call{method: "POST", path: "/v1/gate", body: body, headers: headers}
	}
	reviewed := sync.OnceValue(func() string {
		_, data := s.Call(t, "POST", "/v1/gate", changeBody, auth...)
		var r gate.Report
		if err := json.Unmarshal(data, &r); err != nil {
			t.Fatal(err)
		}
		return r.SessionID
	})
	alone := settled(`["amber","birch","cedar"]`)
	stalled := convene(alone, "", auth...)
	stalled.send = func() (*http.Response, []byte) {
		return s.Stalled(t, "POST", "/v1/council/"+alone()+"/convene", auth...)
	}
	tooOften := convene(nil, "")
	tooOften.send = func() (resp *http.Response, data []byte) {
		id := settled(`["amber","birch"]`)()
		overLimit("/v1/council", `{"query":""}`)
		return s.Call(t, "POST", "/v1/council/"+id+"/convene", "", auth...)
	}
	full := feedback(finished, `{"rating":5}`, auth...)
	full.prepare = func() { labels.err = errors.New("no disk") }
	flood := feedback(finished, "", auth...)
	flood.send = func() (resp *http.Response, data []byte) {
		for range 200 {
			if resp, data = s.Call(t, "POST", "/v1/council/"+finished()+"/feedback", `{"rating":5}`, auth...); resp.StatusCode == http.StatusTooManyRequests {
				break
			}
		}
		return resp, data
	}
	slow := feedback(finished, "", auth...)
	slow.send = func() (*http.Response, []byte) {
		return s.Stalled(t, "POST", "/v1/council/"+finished()+"/feedback", auth...)
	}
	calls := []call{
		{method: "POST", path: "/v1/council", body: `{"query":"x"}`, headers: auth},
		{method: "POST", path: "/v1/council", body: `{"query":"x","models":["down","amber","birch"]}`, headers: auth},
		{method: "POST", path: "/v1/council", body: `{`, headers: auth},
		{method: "POST", path: "/v1/council", body: `{"query":"x"}`},
		{method: "POST", path: "/v1/council", body: `{"query":"x","chairman":"y"}`, headers: auth},
		{method: "PUT", path: "/v1/council", headers: auth},
		{method: "POST", path: "/v1/council", body: `{"query":"x","stream":true}`, headers: auth},
		{
			method: "POST", path: "/v1/council", body: `{"query":"x","background":true}`,
			headers: append([]string{"Idempotency-Key", "1"}, auth...),
		},
		{method: "POST", path: "/v1/council", body: `{"query":"y"}`, headers: append([]string{"Idempotency-Key", "1"}, auth...)},
		{method: "GET", path: "/v1/council", headers: auth},
		{method: "GET", path: "/v1/council"},
		{method: "GET", path: "/v1/council?limit=0", headers: auth},
		{method: "GET", path: "/v1/council/{id}/request", headers: auth, id: finished},
		{method: "GET", path: "/v1/council/{id}/request", id: finished},
		{method: "GET", path: "/v1/council/{id}/request", headers: auth},
		{method: "PUT", path: "/v1/council/{id}/request", headers: auth, id: finished},
		{method: "GET", path: "/v1/council/{id}/cost", headers: auth, id: finished},
		{method: "GET", path: "/v1/council/{id}/cost", id: finished},
		{method: "GET", path: "/v1/council/{id}/cost", headers: append([]string{"Origin", "https://elsewhere.example"}, auth...), id: finished},
		{method: "GET", path: "/v1/council/{id}/cost", headers: auth},
		{method: "PUT", path: "/v1/council/{id}/cost", headers: auth, id: finished},
		{method: "GET", path: "/v1/council/{id}/cost", send: func() (*http.Response, []byte) {
			return tooMany("GET", "/v1/council/none/cost", "")
		}},
		{method: "GET", path: "/v1/councils", headers: auth},
		{method: "GET", path: "/v1/councils"},
		{method: "PUT", path: "/v1/councils", headers: auth},
		{method: "GET", path: "/v1/council/{id}", headers: auth, id: finished},
		{method: "GET", path: "/v1/council/{id}", headers: auth, id: failed},
		{method: "GET", path: "/v1/council/{id}", headers: auth, id: hanging},
		{method: "GET", path: "/v1/council/{id}", id: finished},
		{method: "GET", path: "/v1/council/{id}", headers: auth},
		{method: "PUT", path: "/v1/council/{id}", headers: auth, id: finished},
		rename(finished, `{"title":"a name"}`, auth...),
		rename(finished, `{`, auth...),
		rename(finished, `{"title":""}`),
		rename(finished, `{"title":""}`, append([]string{"Origin", "https://elsewhere.example"}, auth...)...),
		rename(nil, `{"title":""}`, auth...),
		rename(hanging, `{"title":""}`, auth...),
		rename(finished, strings.Repeat(" ", 2<<20), auth...),
		rename(finished, `x`, append([]string{"Content-Type", "text/csv"}, auth...)...),
		rename(finished, `{"title":"two\nlines"}`, auth...),
		{method: "DELETE", path: "/v1/council/{id}", headers: auth, id: hanging},
		stalledName,
		unwritableName,
		{method: "DELETE", path: "/v1/council/{id}", id: finished},
		{
			method: "DELETE", path: "/v1/council/{id}", headers: append([]string{"Origin", "https://elsewhere.example"}, auth...),
			id: finished,
		},
		{method: "DELETE", path: "/v1/council/{id}", headers: auth},
		{
			method: "DELETE", path: "/v1/council/{id}",
			send: func() (*http.Response, []byte) { return notWritable("DELETE", "") },
		},
		{method: "GET", path: "/v1/council/{id}/events", headers: auth, id: finished},
		{method: "GET", path: "/v1/council/{id}/events", headers: append([]string{"Last-Event-ID", "5"}, auth...), id: failed},
		{method: "GET", path: "/v1/council/{id}/events", headers: append([]string{"Last-Event-ID", "x"}, auth...), id: finished},
		{method: "GET", path: "/v1/council/{id}/events", id: finished},
		{method: "GET", path: "/v1/council/{id}/events", headers: auth},
		{method: "PUT", path: "/v1/council/{id}/events", headers: auth, id: finished},
		feedback(finished, `{"preferred":"synthesis","over":["amber"],"rating":5,"by":"me"}`, auth...),
		feedback(finished, `{`, auth...),
		feedback(finished, `{"rating":5}`),
		feedback(finished, `{"rating":5}`, append([]string{"Origin", "https://elsewhere.example"}, auth...)...),
		feedback(nil, `{"rating":5}`, auth...),
		flood,
		{method: "PUT", path: "/v1/council/{id}/feedback", headers: auth, id: finished},
		slow,
		feedback(sync.OnceValue(func() string { return inBackground(`["hang","hang"]`) }), `{"rating":5}`, auth...),
		feedback(finished, strings.Repeat(" ", 2<<20), auth...),
		feedback(finished, `x`, append([]string{"Content-Type", "text/csv"}, auth...)...),
		feedback(finished, `{}`, auth...),
		full,
		{method: "DELETE", path: "/v1/council/{id}", headers: auth, id: finished},
		convene(alone, `{`, auth...),
		convene(alone, ""),
		convene(alone, "", append([]string{"Origin", "https://elsewhere.example"}, auth...)...),
		convene(nil, "", auth...),
		{method: "PUT", path: "/v1/council/{id}/convene", headers: auth, id: alone},
		stalled,
		convene(alone, strings.Repeat(" ", 2<<20), auth...),
		convene(alone, `x`, append([]string{"Content-Type", "text/csv"}, auth...)...),
		convene(alone, `{"query":"x"}`, auth...),
		convene(alone, "", auth...),
		convene(alone, "", auth...),
		convene(settled(`["amber","birch"]`), `{"background":true}`, auth...),
		convene(settled(`["amber","down","down"]`), "", auth...),
		convene(settled(`["amber","hang","hang"]`), "", auth...),
		{method: "POST", path: "/v1/council", body: strings.Repeat(" ", 2<<20), headers: auth},
		{method: "POST", path: "/v1/council", body: `x`, headers: append([]string{"Content-Type", "text/csv"}, auth...)},
		{method: "POST", path: "/v1/council", body: `{"query":""}`, headers: auth},
		{method: "POST", path: "/v1/council", body: `{"query":"panic"}`, headers: auth},
		{method: "POST", path: "/v1/council", body: `{"query":"x","models":["down","down"]}`, headers: auth},
		{method: "POST", path: "/v1/council", body: `{"query":"x","models":["hang","hang"],"timeout_seconds":0.1}`, headers: auth},
		{method: "POST", path: "/v1/council", body: `{"query":"x"}`, headers: auth, prepare: func() { s.Daemon.Drains.Store(true) }},
		{
			method: "POST", path: "/v1/council",
			send: func() (*http.Response, []byte) { return s.Stalled(t, "POST", "/v1/council", auth...) },
		},
		{method: "POST", path: "/v1/council/estimate", body: pairBody, headers: auth},
		judge(pairBody, auth...),
		judge(strings.Replace(pairBody, `]`, `,{"id":"c","text":"three"}],"orders":"both"`, 1), auth...),
		judge(strings.Replace(pairBody, `{`, `{"background":true,`, 1), append([]string{"Idempotency-Key", "4"}, auth...)...),
		judge(pairBody, append([]string{"Idempotency-Key", "4"}, auth...)...),
		judge(`{`, auth...),
		judge(pairBody),
		judge(pairBody, append([]string{"Origin", "https://elsewhere.example"}, auth...)...),
		{method: "PUT", path: "/v1/judge", headers: auth},
		{method: "POST", path: "/v1/judge", send: func() (*http.Response, []byte) { return s.Stalled(t, "POST", "/v1/judge", auth...) }},
		judge(strings.Repeat(" ", 2<<20), auth...),
		judge(`x`, append([]string{"Content-Type", "text/csv"}, auth...)...),
		judge(`{"question":"x","answers":[]}`, auth...),
		judge(strings.Replace(pairBody, "Why is the sky blue?", "panic", 1), auth...),
		judge(strings.Replace(pairBody, `{`, `{"timeout_seconds":0.0001,`, 1), auth...),
		{method: "POST", path: "/v1/council/estimate", body: changeBody, headers: auth},
		gateCall(changeBody, auth...),
		gateCall(strings.Replace(changeBody, `{`, `{"background":true,`, 1), append([]string{"Idempotency-Key", "5"}, auth...)...),
		gateCall(changeBody, append([]string{"Idempotency-Key", "5"}, auth...)...),
		gateCall(`{`, auth...),
		gateCall(changeBody),
		gateCall(changeBody, append([]string{"Origin", "https://elsewhere.example"}, auth...)...),
		{method: "PUT", path: "/v1/gate", headers: auth},
		{method: "POST", path: "/v1/gate", send: func() (*http.Response, []byte) { return s.Stalled(t, "POST", "/v1/gate", auth...) }},
		gateCall(strings.Repeat(" ", 2<<20), auth...),
		gateCall(`x`, append([]string{"Content-Type", "text/csv"}, auth...)...),
		gateCall(`{"diff":""}`, auth...),
		gateCall(strings.Replace(changeBody, `{`, `{"council":"panic",`, 1), auth...),
		{method: "GET", path: "/v1/gate/{id}", headers: auth, id: reviewed},
		{method: "GET", path: "/v1/gate/{id}", id: reviewed},
		{method: "GET", path: "/v1/gate/{id}", send: func() (*http.Response, []byte) {
			s, id := runningGate(t)
			return s.Call(t, "GET", "/v1/gate/"+id, "")
		}},
		{method: "GET", path: "/v1/gate/{id}", headers: auth, id: alone},
		{method: "PUT", path: "/v1/gate/{id}", headers: auth, id: reviewed},
		{method: "GET", path: "/v1/council/{id}", headers: auth, id: reviewed},
		{method: "GET", path: "/v1/council/{id}/request", headers: auth, id: reviewed},
		{method: "GET", path: "/v1/judge/{id}", headers: auth, id: judgedPair},
		{method: "GET", path: "/v1/judge/{id}", id: judgedPair},
		{method: "GET", path: "/v1/judge/{id}", headers: auth, id: alone},
		{method: "PUT", path: "/v1/judge/{id}", headers: auth, id: judgedPair},
		{method: "GET", path: "/v1/council/{id}", headers: auth, id: judgedPair},
		{method: "GET", path: "/v1/council/{id}/request", headers: auth, id: judgedPair},
		{method: "GET", path: "/v1/models", headers: auth},
		{method: "GET", path: "/v1/models"},
		{method: "PUT", path: "/v1/models", headers: auth},
		{method: "GET", path: "/v1/models/{id}", headers: auth, id: func() string { return "council" }},
		{method: "GET", path: "/v1/models/{id}"},
		{method: "GET", path: "/v1/models/{id}", headers: auth},
		{method: "PUT", path: "/v1/models/{id}", headers: auth},
		respond(response("council", "x"), auth...),
		respond(`{"model":"council","stream":true,"input":"x"}`, append([]string{"Idempotency-Key", "3"}, auth...)...),
		respond(response("council", "y"), append([]string{"Idempotency-Key", "3"}, auth...)...),
		respond(`{`, auth...),
		respond(response("council", "x")),
		respond(response("council/y", "x"), auth...),
		respond(response("gpt", "x"), auth...),
		{method: "PUT", path: "/v1/responses", headers: auth},
		{
			method: "POST", path: "/v1/responses",
			send: func() (*http.Response, []byte) { return s.Stalled(t, "POST", "/v1/responses", auth...) },
		},
		respond(strings.Repeat(" ", 2<<20), auth...),
		respond(`x`, append([]string{"Content-Type", "text/csv"}, auth...)...),
		respond(response("council", ""), auth...),
		respond(response("council", "panic"), auth...),
		respond(response("council/down,down", "x"), auth...),
		respond(response("council/hang,hang", "x"), auth...),
		{
			method: "POST", path: "/v1/responses", body: response("council", "x"), headers: auth,
			prepare: func() { s.Daemon.Drains.Store(true) },
		},
		ofResponse("GET", "", answered, auth...),
		ofResponse("GET", "", failed, auth...),
		ofResponse("GET", "?stream=true", answered, auth...),
		ofResponse("GET", "?stream=true&starting_after=x", answered, auth...),
		ofResponse("GET", "", answered),
		ofResponse("GET", "", nil, auth...),
		ofResponse("PUT", "", answered, auth...),
		ofResponse("DELETE", "", inTheBackground, auth...),
		ofResponse("DELETE", "", answered),
		ofResponse("DELETE", "", answered, elsewhere...),
		ofResponse("DELETE", "", nil, auth...),
		ofResponse("DELETE", "", over(`["amber","birch","cedar"]`), auth...),
		ofResponse("POST", "/cancel", inTheForeground, auth...),
		ofResponse("POST", "/cancel", inTheBackground, auth...),
		ofResponse("POST", "/cancel", answered),
		ofResponse("POST", "/cancel", answered, elsewhere...),
		ofResponse("POST", "/cancel", nil, auth...),
		ofResponse("PUT", "/cancel", answered, auth...),
		ofResponse("GET", "/input_items", answered, auth...),
		ofResponse("GET", "/input_items?limit=0", answered, auth...),
		ofResponse("GET", "/input_items", answered),
		ofResponse("GET", "/input_items", nil, auth...),
		ofResponse("PUT", "/input_items", answered, auth...),
		decide(decision("council", "x"), append([]string{"Idempotency-Key", "decide"}, auth...)...),
		decide(decision("council", "y"), append([]string{"Idempotency-Key", "decide"}, auth...)...),
		decide(`{`, auth...),
		decide(decision("council", "x")),
		decide(decision("council/y", "x"), auth...),
		decide(decision("gpt", "x"), auth...),
		{method: "PUT", path: "/v1/decisions", headers: auth},
		{
			method: "POST", path: "/v1/decisions",
			send: func() (*http.Response, []byte) { return s.Stalled(t, "POST", "/v1/decisions", auth...) },
		},
		decide(strings.Repeat(" ", 2<<20), auth...),
		decide(`x`, append([]string{"Content-Type", "text/csv"}, auth...)...),
		decide(decision("council", ""), auth...),
		decide(decision("council", "panic"), auth...),
		decide(decision("council/down,down", "x"), auth...),
		decide(decision("council/hang,hang", "x"), auth...),
		{
			method: "POST", path: "/v1/decisions", body: decision("council", "x"), headers: auth,
			prepare: func() { s.Daemon.Drains.Store(true) },
		},
		chat(completion("council", "x"), auth...),
		chat(
			`{"model":"council","stream":true,"messages":[{"role":"user","content":"x"}]}`,
			append([]string{"Idempotency-Key", "2"}, auth...)...,
		),
		chat(completion("council", "y"), append([]string{"Idempotency-Key", "2"}, auth...)...),
		chat(`{`, auth...),
		chat(completion("council", "x")),
		chat(completion("council/y", "x"), auth...),
		chat(completion("gpt", "x"), auth...),
		{method: "PUT", path: "/v1/chat/completions", headers: auth},
		{
			method: "POST", path: "/v1/chat/completions",
			send: func() (*http.Response, []byte) { return s.Stalled(t, "POST", "/v1/chat/completions", auth...) },
		},
		chat(strings.Repeat(" ", 2<<20), auth...),
		chat(`x`, append([]string{"Content-Type", "text/csv"}, auth...)...),
		chat(completion("council", ""), auth...),
		chat(completion("council", "panic"), auth...),
		chat(completion("council/down,down", "x"), auth...),
		chat(completion("council/hang,hang", "x"), auth...),
		{
			method: "POST", path: "/v1/chat/completions", body: completion("council", "x"), headers: auth,
			prepare: func() { s.Daemon.Drains.Store(true) },
		},
		tooOften,
		{method: "POST", path: "/v1/council", send: func() (*http.Response, []byte) { return overLimit("/v1/council", `{"query":""}`) }},
		{
			method: "POST", path: "/v1/chat/completions",
			send: func() (*http.Response, []byte) { return overLimit("/v1/chat/completions", completion("council", "")) },
		},
		{
			method: "POST", path: "/v1/responses",
			send: func() (*http.Response, []byte) { return overLimit("/v1/responses", response("council", "")) },
		},
		{
			method: "POST", path: "/v1/decisions",
			send: func() (*http.Response, []byte) { return overLimit("/v1/decisions", decision("council", "z")) },
		},
		{method: "POST", path: "/mcp", body: `{"jsonrpc":"2.0","id":1,"method":"ping"}`, headers: auth},
		{method: "POST", path: "/mcp", body: `{"jsonrpc":"2.0","method":"notifications/initialized"}`, headers: auth},
		{method: "POST", path: "/mcp", body: " ", headers: auth},
		{method: "POST", path: "/mcp", body: `{"jsonrpc":"2.0","id":1,"method":"ping"}`},
		{method: "POST", path: "/mcp", body: `{}`, headers: append([]string{"Origin", "https://elsewhere.example"}, auth...)},
		{method: "GET", path: "/mcp", headers: auth},
		{method: "POST", path: "/mcp", send: func() (*http.Response, []byte) { return s.Stalled(t, "POST", "/mcp", auth...) }},
		{method: "POST", path: "/mcp", body: strings.Repeat(" ", 2<<20), headers: auth},
		{method: "POST", path: "/mcp", body: `x`, headers: append([]string{"Content-Type", "text/csv"}, auth...)},
		{method: "POST", path: "/v1/events", body: `{"events":[{}]}`, headers: auth},
		{method: "POST", path: "/v1/events", body: `{`, headers: auth},
		{method: "POST", path: "/v1/events", body: `{"events":[{}]}`},
		{method: "POST", path: "/v1/events", body: `{"events":[{}]}`, headers: append([]string{"Origin", "https://elsewhere.example"}, auth...)},
		{method: "POST", path: "/v1/events", send: func() (*http.Response, []byte) {
			return start(t, nil).Call(t, "POST", "/v1/events", `{"events":[{}]}`)
		}},
		{method: "PUT", path: "/v1/events", headers: auth},
		{method: "POST", path: "/v1/events", send: func() (*http.Response, []byte) { return s.Stalled(t, "POST", "/v1/events", auth...) }},
		{method: "POST", path: "/v1/events", body: strings.Repeat(" ", 2<<20), headers: auth},
		{method: "POST", path: "/v1/events", body: `x`, headers: append([]string{"Content-Type", "text/csv"}, auth...)},
		{method: "POST", path: "/v1/events", body: `{"events":[]}`, headers: auth},
		{method: "POST", path: "/v1/events", body: `{"events":[{}]}`, headers: auth, prepare: func() { intake.err = consent.ErrFull }},
		{method: "POST", path: "/v1/events", body: `{"events":[{}]}`, headers: auth, prepare: func() { intake.err = errors.New("no disk") }},
		{method: "GET", path: "/v1/bias-report", headers: auth},
		{method: "GET", path: "/v1/bias-report", headers: auth, prepare: func() {
			s.Daemon.Reports, s.Daemon.Evidences = fullReport, fullEvidence
		}},
		{method: "GET", path: "/v1/bias-report?format=text", headers: auth},
		{method: "GET", path: "/v1/bias-report?format=csv", headers: auth},
		{method: "GET", path: "/v1/bias-report?format=html", headers: auth},
		{method: "GET", path: "/v1/bias-report"},
		{method: "DELETE", path: "/v1/bias-report", headers: auth},
		{method: "GET", path: "/v1/bias-report?days=x", headers: auth},
		{method: "GET", path: "/v1/bias-report", headers: auth, prepare: func() {
			s.Daemon.Reports = func(bias.Query) (bias.Report, error) { return bias.Report{}, errors.New("no disk") }
		}},
		{method: "GET", path: "/v1/leaderboard", headers: auth, prepare: func() { s.Daemon.Boards = fullLeaderboard }},
		{method: "GET", path: "/v1/leaderboard?format=text", headers: auth},
		{method: "GET", path: "/v1/leaderboard?format=csv", headers: auth},
		{method: "GET", path: "/v1/leaderboard?format=html", headers: auth},
		{method: "GET", path: "/v1/leaderboard"},
		{method: "DELETE", path: "/v1/leaderboard", headers: auth},
		{method: "GET", path: "/v1/leaderboard?days=x", headers: auth},
		{method: "GET", path: "/v1/leaderboard", headers: auth, prepare: func() {
			s.Daemon.Boards = func(bias.Query) (bias.Leaderboard, error) {
				return bias.Leaderboard{}, errors.New("no disk")
			}
		}},
		{method: "GET", path: "/v1/leaderboard?scope=events&days=7", headers: auth},
		{method: "GET", path: "/v1/leaderboard?scope=events", send: func() (*http.Response, []byte) {
			return start(t, nil).Call(t, "GET", "/v1/leaderboard?scope=events", "")
		}},
		{method: "GET", path: "/v1/leaderboard?scope=events&days=8", headers: auth},
		{method: "GET", path: "/v1/leaderboard?scope=events&category=coding", headers: auth},
		{method: "POST", path: "/v1/council/estimate", body: `{"query":"x"}`, headers: auth},
		{method: "POST", path: "/v1/council/estimate", body: `{`, headers: auth},
		{method: "POST", path: "/v1/council/estimate", body: `{"query":"x"}`},
		{method: "POST", path: "/v1/council/estimate", body: `{"query":"x","chairman":"y"}`, headers: auth},
		{method: "PUT", path: "/v1/council/estimate", headers: auth},
		{
			method: "POST", path: "/v1/council/estimate",
			send: func() (*http.Response, []byte) { return s.Stalled(t, "POST", "/v1/council/estimate", auth...) },
		},
		{method: "POST", path: "/v1/council/estimate", body: strings.Repeat(" ", 2<<20), headers: auth},
		{method: "POST", path: "/v1/council/estimate", body: `x`, headers: append([]string{"Content-Type", "text/csv"}, auth...)},
		{method: "POST", path: "/v1/council/estimate", body: `{"query":""}`, headers: auth},
		{method: "POST", path: "/v1/council/estimate", body: `{"query":"panic"}`, headers: auth},
		{method: "POST", path: "/v1/council/estimate", send: func() (*http.Response, []byte) {
			return tooMany("POST", "/v1/council/estimate", `{"query":"x"}`)
		}},
		{method: "POST", path: "/v1/disagreement", body: twoAnswers, headers: auth},
		{method: "POST", path: "/v1/disagreement", body: `{`, headers: auth},
		{method: "POST", path: "/v1/disagreement", body: twoAnswers},
		{
			method: "POST", path: "/v1/disagreement", body: twoAnswers,
			headers: append([]string{"Origin", "https://elsewhere.example"}, auth...),
		},
		{method: "PUT", path: "/v1/disagreement", headers: auth},
		{
			method: "POST", path: "/v1/disagreement",
			send: func() (*http.Response, []byte) { return s.Stalled(t, "POST", "/v1/disagreement", auth...) },
		},
		{method: "POST", path: "/v1/disagreement", body: strings.Repeat(" ", 2<<20), headers: auth},
		{method: "POST", path: "/v1/disagreement", body: `x`, headers: append([]string{"Content-Type", "text/csv"}, auth...)},
		{method: "POST", path: "/v1/disagreement", body: `{"answers":[]}`, headers: auth},
		{method: "POST", path: "/v1/disagreement", body: byJudge, headers: auth},
		{method: "POST", path: "/v1/disagreement", body: byEmbedding, headers: auth},
		{method: "POST", path: "/v1/judge", send: func() (*http.Response, []byte) { return overLimit("/v1/judge", pairBody) }},
		{method: "POST", path: "/v1/gate", send: func() (*http.Response, []byte) { return overLimit("/v1/gate", changeBody) }},
		{method: "POST", path: "/v1/disagreement", send: func() (*http.Response, []byte) { return overLimit("/v1/disagreement", byJudge) }},
		{method: "POST", path: "/v1/disagreement", body: strings.Replace(twoAnswers, "Why?", "panic", 1), headers: auth},
		{method: "POST", path: "/v1/disagreement", send: func() (*http.Response, []byte) {
			return tooMany("POST", "/v1/disagreement", twoAnswers)
		}},
		{method: "GET", path: "/v1/spend", headers: auth},
		{method: "GET", path: "/v1/spend?by=model&format=text", headers: auth},
		{method: "GET", path: "/v1/spend?by=council&format=csv", headers: auth},
		{method: "GET", path: "/v1/spend"},
		{method: "DELETE", path: "/v1/spend", headers: auth},
		{method: "GET", path: "/v1/spend?by=x", headers: auth},
		{method: "GET", path: "/v1/spend", headers: auth, prepare: func() { s.Daemon.SpendFails.Store(true) }},
		{method: "GET", path: "/v1/spend", headers: append([]string{"Origin", "https://elsewhere.example"}, auth...)},
		{method: "GET", path: "/v1/spend", send: func() (*http.Response, []byte) { return tooMany("GET", "/v1/spend", "") }},
		{method: "GET", path: "/v1/bias-report", headers: append([]string{"Origin", "https://elsewhere.example"}, auth...)},
		{method: "GET", path: "/v1/bias-report", send: func() (*http.Response, []byte) { return tooMany("GET", "/v1/bias-report", "") }},
		{method: "GET", path: "/v1/leaderboard", headers: append([]string{"Origin", "https://elsewhere.example"}, auth...)},
		{method: "GET", path: "/v1/leaderboard", send: func() (*http.Response, []byte) { return tooMany("GET", "/v1/leaderboard", "") }},
		{method: "GET", path: "/"},
		{method: "GET", path: "/", headers: []string{"If-None-Match", "*"}},
		{method: "PUT", path: "/"},
		{method: "GET", path: "/assets/{name}", id: func() string { return "style.css" }},
		{method: "GET", path: "/assets/{name}", headers: []string{"If-None-Match", "*"}, id: func() string { return "main.js" }},
		{method: "GET", path: "/assets/{name}"},
		{method: "PUT", path: "/assets/{name}"},
		{method: "GET", path: "/healthz"},
		{method: "PUT", path: "/healthz"},
		{method: "GET", path: "/readyz"},
		{method: "PUT", path: "/readyz"},
		{method: "GET", path: "/readyz", prepare: func() {
			s.Daemon.Reasons = func() []httpapi.Reason { return []httpapi.Reason{{Code: "store", Message: "full"}} }
		}},
		{method: "GET", path: "/metrics"},
		{method: "PUT", path: "/metrics"},
		{method: "GET", path: "/openapi.yaml"},
		{method: "PUT", path: "/openapi.yaml"},
	}
	crowded := start(t, nil, func(o *httpapi.Options, _ *pipeline.Options) { o.Connections = 1 }) // which is for /healthz and /readyz
	for path, item := range doc.Paths.Map() {
		for method := range item.Operations() {
			calls = append(calls, call{method: method, path: path, send: func() (*http.Response, []byte) {
				return crowded.Call(t, method, path, "")
			}})
		}
	}
	produced := map[string]bool{}
	for _, k := range calls {
		ready()
		if k.prepare != nil {
			k.prepare()
		}
		id := "nothing"
		if k.id != nil {
			id = k.id()
		}
		if k.send == nil {
			k.send = func() (*http.Response, []byte) {
				return s.Call(t, k.method, strings.NewReplacer("{id}", id, "{name}", id).Replace(k.path), k.body, k.headers...)
			}
		}
		resp, data := k.send()
		path, _, _ := strings.Cut(k.path, "?")
		item := doc.Paths.Value(path)
		methods := []string{k.method}
		if item.GetOperation(k.method) == nil { // a 405: it is documented with the path's own operations
			methods = slices.Collect(maps.Keys(item.Operations()))
		}
		response := item.GetOperation(methods[0]).Responses.Status(resp.StatusCode)
		if response == nil {
			t.Errorf("%s %s answered %d, which is not documented: %s", k.method, path, resp.StatusCode, data)
			continue
		}
		for _, method := range methods {
			produced[method+" "+path+" "+strconv.Itoa(resp.StatusCode)] = true
		}
		for name := range response.Value.Headers {
			if resp.Header.Get(name) == "" {
				t.Errorf("%s %s %d: the header %s is documented, but missing", k.method, path, resp.StatusCode, name)
			}
		}
		if len(data) == 0 && len(response.Value.Content) == 0 {
			continue
		}
		media := response.Value.Content.Get(resp.Header.Get("Content-Type"))
		if media == nil {
			t.Errorf("%s %s %d: the media type %q is not documented", k.method, path, resp.StatusCode, resp.Header.Get("Content-Type"))
			continue
		}
		if !strings.Contains(resp.Header.Get("Content-Type"), "json") {
			continue
		}
		var body any
		if err := json.Unmarshal(data, &body); err != nil {
			t.Fatal(err)
		}
		if err := media.Schema.Value.VisitJSON(body); err != nil {
			t.Errorf("%s %s %d: %v", k.method, path, resp.StatusCode, err)
		}
	}
	for path, item := range doc.Paths.Map() {
		for method, operation := range item.Operations() {
			for status := range operation.Responses.Map() {
				if !produced[method+" "+path+" "+status] {
					t.Errorf("%s %s: the status %s is documented, but not tested", method, path, status)
				}
			}
		}
	}
}
