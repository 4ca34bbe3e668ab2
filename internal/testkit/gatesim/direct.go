package gatesim

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/gate"
	"github.com/councild/councild/internal/simllm"
)

// Direct returns an Ask that carries out the gate without a pipeline and without a network: it hands each call to the
// simulated models of a world. The function change may change the models and the request. It may be nil.
func Direct(w World, change func([]simllm.Model, *gate.Request)) (Ask, error) {
	models := w.Models()
	base := gate.Request{MaxFindings: 50}
	if change != nil {
		change(models, &base)
	}
	server, err := simllm.New(simllm.Options{Models: models, Planted: Planted(w.Tempting)})
	if err != nil {
		return nil, err
	}
	seats := w.Seats()
	return func(ctx context.Context, diff string) (report gate.Report, err error) {
		request := base
		request.Diff = diff
		input, err := json.Marshal(request)
		if err != nil {
			return report, err
		}
		plan := council.Plan{
			Stages: []council.StagePlan{{Kind: council.KindTask1, Seats: seats}, {Kind: council.KindTask2, Seats: seats}},
			Task:   &council.TaskPlan{Name: gate.TaskName, Input: input},
		}
		var rounds []council.TaskRound
		for range plan.Stages {
			calls, err := gate.Gate{}.Calls(plan, rounds)
			if err != nil {
				return report, err
			}
			var round council.TaskRound
			for _, call := range calls {
				text, err := complete(ctx, server, call)
				if err != nil {
					return report, err
				}
				round.Replies = append(round.Replies, council.TaskReply{Seat: call.Seat, Text: text})
			}
			rounds = append(rounds, round)
		}
		result, err := gate.Gate{}.Result(plan, rounds)
		if err != nil {
			return report, err
		}
		return report, json.Unmarshal(result, &report)
	}, nil
}

// complete returns the reply of a simulated model to a call.
func complete(ctx context.Context, server *simllm.Server, call council.Call) (string, error) {
	body := map[string]any{"model": call.Model, "messages": call.Messages}
	if call.Format != nil {
		body["response_format"] = map[string]any{"type": "json_schema", "json_schema": map[string]any{
			"name": call.Format.Name, "schema": call.Format.Schema,
		}}
	}
	data, err := json.Marshal(body)
	if err != nil {
		return "", err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "/v1/chat/completions", bytes.NewReader(data))
	if err != nil {
		return "", err
	}
	w := httptest.NewRecorder()
	server.ServeHTTP(w, request)
	var reply struct {
		Choices []struct {
			Message struct {
				Content string `json:"content"`
			} `json:"message"`
		} `json:"choices"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &reply); err != nil || len(reply.Choices) != 1 {
		return "", fmt.Errorf("%s: %d %.200s", call.Model, w.Code, w.Body)
	}
	return reply.Choices[0].Message.Content, nil
}
