package trial

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/pipeline"
)

// Plan holds everything that shapes a run. It is made, and shown to the user, before the first call.
type Plan struct {
	File      string `json:"file_sha256"` // the SHA-256 of the questions file, in hex
	Questions int    `json:"questions"`
	Clusters  int    `json:"clusters"`
	Shape
	Members   []council.Member `json:"members"`
	Reviewers []council.Member `json:"reviewers"`
	Chairmen  []council.Member `json:"chairmen"`
	Order     council.Order    `json:"order"`
	TimeoutS  float64          `json:"timeout_s"` // the time budget of a session, in seconds
	OnPartial string           `json:"on_partial"`
	Rules     council.Rules    `json:"rules"`
	// Sides are the sides of the sessions, without the fields that differ between sessions.
	Sides    []council.SidePlan `json:"sides"`
	Versions council.Versions   `json:"versions"`
	Review   string             `json:"review_prompt"` // the version of the reviewers' prompt
	Grades   string             `json:"grader_version"`
	Grader   string             `json:"grader"` // the type for references without a grader, "" for none
	Seed     int64              `json:"seed"`
	// Arms are the arms of a comparison, in the order of its report. A batch has none.
	Arms     []string       `json:"arms"`
	Ensemble council.Member `json:"ensemble"` // the member whose model an ensemble asks
	// Samples is how often an ensemble asks its model. It is 0 without an ensemble.
	Samples  int              `json:"samples"`
	Judges   []council.Member `json:"judges"` // compare the answers to questions without right answers
	Margin   float64          `json:"margin"` // as in worth.Design
	ValueUSD *float64         `json:"value_usd"`
	Alpha    float64          `json:"alpha"` // the error level of a verdict
}

// Shape says which council is asked, and how.
type Shape struct {
	Council string       `json:"council"` // the name in the roster, "default" without a roster
	Mode    council.Mode `json:"mode"`
	First   int          `json:"first"` // as in council.Plan
}

// Hash returns the SHA-256, in hex, of the plan as JSON with sorted keys and without white space.
func (p Plan) Hash() string {
	sum := sha256.Sum256(canonical(p))
	return hex.EncodeToString(sum[:])
}

// canonical returns a value as JSON with sorted keys and without white space.
func canonical(value any) []byte {
	data, _ := json.Marshal(value) // plain data
	var plain any
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	_ = d.Decode(&plain)
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(plain) // It sorts the keys of a map.
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// Differs returns the names of the fields in which two plans differ.
func (p Plan) Differs(q Plan) []string {
	var a, b map[string]any
	_ = json.Unmarshal(canonical(p), &a)
	_ = json.Unmarshal(canonical(q), &b)
	var names []string
	for _, name := range slices.Sorted(maps.Keys(a)) {
		if !reflect.DeepEqual(a[name], b[name]) {
			names = append(names, name)
		}
	}
	return names
}

// New returns the plan of a run. The argument questions has the questions of the file, and session is a plan of the
// council that answers them. The argument grader is the type for references without a grader, or "". The caller adds
// the arms and judges of a comparison.
func New(file []byte, questions []Question, session council.Plan, grader string) Plan {
	sum := sha256.Sum256(file)
	p := Plan{
		File:      hex.EncodeToString(sum[:]),
		Questions: len(questions),
		Shape:     Shape{session.CouncilLabel(), session.Mode, session.First},
		Members:   session.Members(),
		Reviewers: session.Reviewers(),
		Chairmen:  session.Chairmen(),
		Order:     session.Order,
		TimeoutS:  session.Timeout.Seconds(),
		OnPartial: string(session.OnPartial),
		Rules:     session.Rules,
		Versions:  session.Versions,
		Review:    session.Stage(council.KindReviews).Prompt,
		Grades:    GradeVersion,
		Grader:    grader,
		Seed:      int64(binary.BigEndian.Uint64(sum[:8]) & council.MaxSeed),
		Arms:      []string{},
		Judges:    []council.Member{},
	}
	p.Rules.Consent = 0
	p.Rules.Providers = nil
	p.Sides = slices.Clone(session.Sides)
	for i := range p.Sides {
		p.Sides[i].MarkerKey = ""
		p.Sides[i].Records = false
	}
	clusters := map[string]bool{}
	for _, q := range questions {
		clusters[q.Cluster()] = true
	}
	p.Clusters = len(clusters)
	return p
}

// ID returns the session id for the question with the given id.
func (p Plan) ID(question string) string {
	b := sha256.Sum256([]byte("councild session\x00" + p.Hash() + "\x00" + question))
	b[6] = 0x80 | b[6]&0x0f
	b[8] = 0x80 | b[8]&0x3f // a UUID of version 8 (RFC 9562)
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:16])
}

// Of returns the session's plan for the question with the given id. The plan's seed, session id and markers depend only
// on the run's plan and the question's id.
func (p Plan) Of(question string, session council.Plan) council.Plan {
	hash := p.Hash()
	sum := sha256.Sum256([]byte("councild question\x00" + hash + "\x00" + question))
	session.Seed = int64(binary.BigEndian.Uint64(sum[:8]) & council.MaxSeed)
	session.SessionID = p.ID(question)
	session.MarkerKey = hash + "\x00" + question
	session.Sides = slices.Clone(session.Sides)
	for i := range session.Sides {
		session.Sides[i].MarkerKey = session.MarkerKey + "\x00" + session.Sides[i].Name
	}
	return session
}

// Ordered returns the questions in the order in which a run asks them. A batch keeps the order of the file. In a
// comparison, the order is drawn from the seed, so that a run that ends early has asked a random sample of the
// questions.
func (p Plan) Ordered(questions []Question) []Question {
	ordered := slices.Clone(questions)
	if len(p.Arms) == 0 {
		return ordered
	}
	rank := func(id string) string {
		sum := sha256.Sum256(fmt.Appendf(nil, "councild order\x00%d\x00%s", p.Seed, id))
		return string(sum[:])
	}
	slices.SortFunc(ordered, func(a, b Question) int { return strings.Compare(rank(a.ID), rank(b.ID)) })
	return ordered
}

// Panel returns the arms of the plan that make calls of their own.
func (p Plan) Panel() []pipeline.Arm {
	var arms []pipeline.Arm
	for _, name := range p.Arms {
		switch kind := pipeline.ArmKind(name); kind {
		case pipeline.ArmSynthesis, pipeline.ArmPlacebo:
			arms = append(arms, pipeline.Arm{Kind: kind})
		case pipeline.ArmEnsemble:
			arms = append(arms, pipeline.Arm{
				Kind:    kind,
				Model:   p.Ensemble,
				Samples: p.Samples,
				Seeded:  strings.HasPrefix(p.Ensemble.Model, config.SimProvider+":"),
			})
		}
	}
	return arms
}

// Held is called at the start of a run. It returns the results that the named file holds already. The argument
// questions is in the order of the plan. Held returns no results if there is no such file. If the file has results of
// another plan, it returns an error.
func (p Plan) Held(name string, questions []Question) (ResultFile, error) {
	held, err := Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return ResultFile{}, nil
	}
	switch {
	case err != nil:
		return ResultFile{}, err
	case held.size > 0 && held.Hash != p.Hash():
		return ResultFile{}, fmt.Errorf("%s holds the results of another plan, which differs in %s: "+
			"write to another file, or ask with the settings of that plan",
			name, strings.Join(p.Differs(held.Plan), ", "))
	case len(held.Results) > len(questions):
		return ResultFile{}, fmt.Errorf("%s holds more questions than the plan has: it is damaged", name)
	}
	for i, result := range held.Results {
		if result.ID != questions[i].ID {
			return ResultFile{}, fmt.Errorf("%s: question %d is %.64q and not %.64q: it is damaged",
				name, i+1, result.ID, questions[i].ID)
		}
	}
	return held, nil
}
