package llm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/stat"
	openai "github.com/sashabaranov/go-openai"
)

// embed performs a request for embeddings.
func (p *provider) embed(ctx context.Context, x *exchange) (received, error) {
	if _, err := p.api.CreateEmbeddings(ctx, openai.EmbeddingRequest{}); err != nil {
		return received{}, err
	}
	if x.refused() {
		return received{}, nil
	}
	r, err := readEmbeddings(ctx, x.body, len(x.call.Texts))
	if failure, ok := errors.AsType[*council.Failure](err); ok {
		failure.HTTPStatus = &x.status
	}
	return r, err
}

// embeddingRequest returns the JSON of a request for embeddings. It leaves out encoding_format, because the default
// is numbers and some servers do not know the field.
func (x *exchange) embeddingRequest() []byte {
	n := 64
	for _, text := range x.call.Texts {
		n += len(text) + len(text)/8
	}
	b := make([]byte, 0, n)
	b = append(b, `{"model":`...)
	b = appendString(b, x.model)
	b = append(b, `,"input":[`...)
	for i, text := range x.call.Texts {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, text)
	}
	b = append(b, ']')
	if x.dialect.askCosts {
		b = append(b, `,"usage":{"include":true}`...)
	}
	return append(b, '}')
}

// readEmbeddings reads a reply with the embeddings of n texts. It returns the usage even if the vectors cannot be
// used.
func readEmbeddings(ctx context.Context, data []byte, n int) (r received, err error) {
	var body struct {
		Data  json.RawMessage `json:"data"`
		Usage json.RawMessage `json:"usage"`
		Error json.RawMessage `json:"error"`
	}
	if err := decode(ctx, data, &body); err != nil {
		return r, noEmbeddings(ctx, "the reply is not the JSON of embeddings")
	}
	r.count(readUsage(body.Usage))
	if r.usage.InputTokens != nil && r.usage.OutputTokens == nil {
		r.usage.OutputTokens = new(int64(0)) // Embeddings have no output.
	}
	if given(body.Error) || !given(body.Data) {
		return r, nil
	}
	vectors, fault := readVectors(ctx, body.Data, n)
	if fault != "" {
		return r, noEmbeddings(ctx, fault)
	}
	r.chosen = true
	r.text = cosines(vectors)
	return r, nil
}

// readVectors reads the embeddings of n texts. If the reply cannot be used, fault says why.
func readVectors(ctx context.Context, data json.RawMessage, n int) (vectors [][]float64, fault string) {
	type element struct {
		Index     *int      `json:"index"`
		Embedding []float64 `json:"embedding"`
	}
	vectors = make([][]float64, n)
	count := 0
	err := each(ctx, data, func(e element) error {
		at := count
		if e.Index != nil {
			at = *e.Index
		}
		count++
		if at < 0 || at >= n || vectors[at] != nil {
			return errCount
		}
		if square := stat.Dot(e.Embedding, e.Embedding); !(square > 0) || math.IsInf(square, 1) {
			return errZero
		}
		vectors[at] = e.Embedding
		return nil
	})
	switch {
	case errors.Is(err, errZero):
		return nil, "an embedding is empty, zero as a whole or too long"
	case err == nil && count == n:
	case err == nil, errors.Is(err, errCount):
		return nil, fmt.Sprintf("the reply does not hold one embedding for each of %d texts", n)
	default:
		return nil, "the reply is not the JSON of embeddings"
	}
	for _, v := range vectors {
		if len(v) != len(vectors[0]) {
			return nil, fmt.Sprintf("the embeddings have %d and %d numbers", len(vectors[0]), len(v))
		}
	}
	return vectors, ""
}

// cosines returns the cosines of all pairs of vectors as JSON. A call for embeddings returns this JSON as its text: see
// council.Call. The call does not return the embeddings, because embeddings reveal much of their texts (ADR-018).
func cosines(vectors [][]float64) string {
	const digits = 1e4
	rows := stat.Matrix(len(vectors), len(vectors), 0.)
	for i, x := range vectors {
		for j, y := range vectors {
			rows[i][j] = math.Round(digits*stat.Cosine(x, y)) / digits
		}
	}
	text, _ := json.Marshal(rows) // No embedding is zero as a whole, so all cosines are numbers.
	return string(text)
}

var (
	errCount = errors.New("more or fewer embeddings than texts")
	errZero  = errors.New("an embedding has no direction")
)

// noEmbeddings returns the error for a reply that cannot be used. If ctx has ended, this is the error of ctx. Otherwise
// it is a *council.Failure with the message.
func noEmbeddings(ctx context.Context, message string) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return &council.Failure{Code: council.FailBadResponse, Message: message}
}
