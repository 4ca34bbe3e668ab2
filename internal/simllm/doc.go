// Package simllm is a simulated OpenAI-compatible provider: one HTTP server that
// behaves like a set of different models. Demonstrations, tests and benchmarks reach
// it over HTTP, as they would reach a real provider. What it sends is always marked:
// every response has the header X-Simulated: true, every completion has the system
// fingerprint "simulated", every model is owned by "simulated", and the first line of
// every text that it writes says "Simulated". Only the texts of Model.Reply and echoes
// of the prompt are not marked. The package leaves to others what to make of a reply.
//
// # Which task a request is
//
// The request alone decides. Its last user message is a review or a synthesis when it
// holds a question between "=== BEGIN QUESTION token ===" and
// "=== END QUESTION token ===" (token is 16 hexadecimal digits) and, under the same
// token, answers between "=== BEGIN ANSWER token: label ===" and
// "=== END ANSWER token: label ===". It is a review when the text after the last
// marker contains "ranking" in double quotes, a choice when it contains "CHOICE:" and
// there are two answers, and a synthesis otherwise. Another last
// message that contains "ranking" in double quotes asks for the ballot of a review
// again, when the user's message before it was that review. Every other conversation
// is a question.
//
// A review whose response_format is honoured is one JSON object. Any other reply whose
// response_format is honoured is a JSON value that fits the schema. The sampling
// parameters max_tokens and max_completion_tokens cut the text. All others are
// accepted and ignored.
//
// # What is planted
//
// An answer makes six points, each on a line of its own, from a fixed bank in which
// every point has a grade from 0 to 4. The quality of an answer is (mean grade - 2) * 2
// points on the scale of scores, so that any reviewer can read the quality from the
// text, whichever server wrote it. Filler brings the text to its length, which does not
// depend on the quality. One sentence is the author's signature, by which a reviewer
// recognises the author. A text without such points, from a real model or a hostile
// one, has a quality drawn from its hash, normal with mean 0 and standard deviation 1.
//
// Reviewer i gives answer j at place p of K the latent score
//
//	6 + quality_j + Harshness_i + Affinity_i[author of j]
//	  + LengthBias_i * log2(characters of j / 2000)
//	  + Position_i[p] + (Last_i at the last of several places) + Noise_i * z
//
// where z is standard normal. The score is the latent score, rounded and clamped to 1
// to 10. The ranking sorts by the latent score. Answers of exactly the same latent
// score share a place. Of two answers a choice is the one with the higher score, and a
// tie when the scores are equal.
//
// # Closed questions
//
// A model may have an ability, and a provider questions to which the right answer is known. Such a
// model ends its answer to such a question with a line that holds what it answers, behind
// "ANSWER:" where the prompt has this word. Model i is right at question q when
//
//	sqrt(Common_i) * u_q + sqrt(1 - Common_i) * w_iq
//
// is below the normal quantile of its accuracy. u is how hard the question is for all, w the model's
// own luck; both standard normal. The errors of two models are correlated as Common of
// both says. Those who are wrong give one of a few wrong answers, with equal probabilities.
//
// As a reviewer, it adds Discernment to the latent score of right answers. As chairman, it gives
// the right answer if it has insight and is shown that answer; insight is drawn as rightness is,
// from the same u and its own w. Otherwise it gives the answer with the most support in the ranking
// that it is shown, or without a ranking the most frequent one.
//
// # Embeddings
//
// Every model embeds texts, all models alike. The hash of each word of a text, in small letters, raises
// or lowers one of 256 numbers by one, so that texts that share many words lie together.
//
// # What it depends on
//
// All random draws come from a hash of Options.Seed, the model's name and the content
// of the request without its token and labels. The same request has the same reply,
// byte for byte, at any time and in any order. The exceptions are the headers Date and
// X-Simulated-Dwell-Us, faults with a limited number of Times, and what Model.Reply
// writes. Two seats of one model therefore write the same answer. The noise of a
// review is drawn for the question, the answer and its place. What an ability makes of a closed
// question is drawn for the seed of the server, the question and the model. A request may have a
// seed: with another one, w and the wrong answer are drawn anew, and u is not.
//
// The usage figures are estimates at 4 bytes a token.
package simllm
