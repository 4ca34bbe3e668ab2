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

// Plan is all that shapes a run. It is made, and shown, before anything is asked.
type Plan struct {
	File      string           `json:"file_sha256"` // of the questions, in hex
	Questions int              `json:"questions"`
	Clusters  int              `json:"clusters"`
	Council   string           `json:"council"` // its name in the roster; "default" without one
	Members   []council.Member `json:"members"`
	Reviewers []council.Member `json:"reviewers"`
	Chairmen  []council.Member `json:"chairmen"`
	Order     council.Order    `json:"order"`
	TimeoutS  float64          `json:"timeout_s"` // of a session
	OnPartial string           `json:"on_partial"`
	Rules     council.Rules    `json:"rules"`
	// Sides are those of the sessions, without what differs between two sessions.
	Sides    []council.SidePlan `json:"sides"`
	Versions council.Versions   `json:"versions"`
	Review   string             `json:"review_prompt"` // the version of the reviewers' prompt
	Grades   string             `json:"grader_version"`
	Grader   string             `json:"grader"` // the type for references without one; "": none
	Seed     int64              `json:"seed"`
	// Arms are what a comparison compares, in the order in which they stand in the report; none in a batch.
	Arms     []string         `json:"arms"`
	Ensemble council.Member   `json:"ensemble"` // whose model an ensemble asks
	Samples  int              `json:"samples"`  // of an ensemble; 0: there is none
	Judges   []council.Member `json:"judges"`   // who compare answers, where there are no right ones
	Margin   float64          `json:"margin"`   // as in worth.Design
	ValueUSD *float64         `json:"value_usd"`
	Alpha    float64          `json:"alpha"` // error level of a verdict
}

// Hash returns the SHA-256, in hex, of the plan as JSON with sorted keys and without blanks.
func (p Plan) Hash() string {
	sum := sha256.Sum256(canonical(p))
	return hex.EncodeToString(sum[:])
}

// canonical returns a value as JSON with sorted keys and without blanks.
func canonical(value any) []byte {
	data, _ := json.Marshal(value) // plain data
	var plain any
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	_ = d.Decode(&plain)
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(plain) // sorts the keys of a map
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

// New returns the plan of a file of questions for the council of a session's plan.
func New(file []byte, questions []Question, session council.Plan, grader string) Plan {
	sum := sha256.Sum256(file)
	p := Plan{
		File:      hex.EncodeToString(sum[:]),
		Questions: len(questions),
		Council:   session.CouncilLabel(),
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

// ID returns the id of the session of a question.
func (p Plan) ID(question string) string {
	b := sha256.Sum256([]byte("councild session\x00" + p.Hash() + "\x00" + question))
	b[6] = 0x80 | b[6]&0x0f
	b[8] = 0x80 | b[8]&0x3f // a UUID of version 8 (RFC 9562)
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:16])
}

// Of returns the plan of the session of a question: its seed, id and markers come from the run's plan and the id
// of the question.
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

// Ordered returns the questions in the order in which they are asked: that of the file, and in a comparison one that
// the seed draws, so that those of a run that ends early are a random sample.
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

// Panel returns the arms that make calls of their own.
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

// Held returns what the file of that name holds of the questions, which are in the order of the plan; nothing where there
// is no such file. The results of another plan are an error.
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
			"write to another file, or ask as before",
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
