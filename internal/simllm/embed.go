package simllm

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"
)

// dimensions is how many numbers an embedding has.
const dimensions = 256

// embeddingRequest is the part of a request for embeddings that is read.
type embeddingRequest struct {
	Model string `json:"model"`
	Input inputs `json:"input"`
}

// inputs holds one text or several.
type inputs []string

// UnmarshalJSON implements json.Unmarshaler.
func (t *inputs) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*t = inputs{one}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(t))
}

type embeddings struct {
	Object string      `json:"object"`
	Data   []embedding `json:"data"`
	Model  string      `json:"model"`
	Usage  *usage      `json:"usage,omitempty"`
}

type embedding struct {
	Object    string `json:"object"`
	Index     int    `json:"index"`
	Embedding any    `json:"embedding"` // a []float64, except in a fault
}

func (s *Server) embed(w http.ResponseWriter, r *http.Request) {
	raw, ok := readBody(w, r)
	if !ok {
		return
	}
	start := time.Now()
	var body embeddingRequest
	if err := json.Unmarshal(raw, &body); err != nil {
		refuse(w, newError(400, "the request is not the JSON of a request for embeddings: "+err.Error()))
		return
	}
	m := s.model(body.Model)
	switch {
	case m == nil:
		refuse(w, noModel(body.Model))
	case len(body.Input) == 0:
		refuse(w, newError(400, "there must be at least one text").about("input"))
	default:
		q := &request{task: Task{Kind: Embedding, Model: m.Name}, texts: body.Input}
		sum := digest(append([]string{string(Embedding)}, body.Input...)...)
		q.key = string(sum[:])
		for _, text := range body.Input {
			q.promptBytes += len(text)
		}
		m.serve(r.Context(), w, q, start)
	}
}

// noModel returns the error for a request with an unknown model.
func noModel(name string) errorBody {
	e := newError(404, fmt.Sprintf("the model %q does not exist", name)).about("model")
	e.Error.Code = "model_not_found"
	return e
}

// embeddings returns the reply to a request for embeddings, changed by the fault.
func (m *model) embeddings(q *request, fault *fault) response {
	reply := embeddings{Object: "list", Data: []embedding{}, Model: m.Name}
	reply.Usage = m.usage(q, message{})
	for i, text := range q.texts {
		reply.Data = append(reply.Data, embedding{Object: "embedding", Index: i, Embedding: embed(text)})
	}
	last := &reply.Data[len(reply.Data)-1]
	switch fault.Kind {
	case EmbeddingMissing:
		reply.Data = reply.Data[:len(reply.Data)-1]
	case EmbeddingUnequal:
		last.Embedding = embed(q.texts[last.Index])[:dimensions-1]
	case EmbeddingZero:
		last.Embedding = make([]float64, dimensions)
	case EmbeddingEmpty:
		last.Embedding = []float64{}
	case FaultNoChoices:
		reply.Data = []embedding{}
	case FaultHugeBody:
		reply.Object = hugeText
		return jsonResponse(200, reply).filled(fault.Size)
	default: // other faults do not change the vectors
	}
	r := jsonResponse(200, reply)
	switch fault.Kind {
	case EmbeddingNaN:
		r.pieces[0] = []byte(strings.Replace(string(r.pieces[0]), `"embedding":[`, `"embedding":[NaN,`, 1))
	case FaultHalfJSON:
		r.pieces[0] = r.pieces[0][:len(r.pieces[0])/2]
	default: // other faults do not change the bytes
	}
	return r
}

// embed returns the embedding of a text. Each word raises or lowers one number of the embedding by one. The hash of the
// word, in lower case, decides which number. Texts with the same words have similar embeddings. No embedding is zero.
func embed(text string) []float64 {
	v := make([]float64, dimensions)
	word := func(w string) {
		h := fnv.New64a()
		_, _ = h.Write([]byte(strings.ToLower(w)))
		sum := h.Sum64()
		if sum>>63 == 1 {
			v[sum%dimensions]++
		} else {
			v[sum%dimensions]--
		}
	}
	for w := range strings.FieldsFuncSeq(text, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsNumber(r) }) {
		word(w)
	}
	if !slices.ContainsFunc(v, func(x float64) bool { return x != 0 }) { // no words, or they cancel each other
		word("")
	}
	return v
}
