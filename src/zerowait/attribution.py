"""Failure attribution: classify an error reply by cause, failure kind and whether to retry.

`attributed` classifies a reply that is no answer, and `ending_of` says how an answer ended. Each
has its table. `ENDINGS` says what the word in ``finish_reason`` means: the judge finished, was cut,
or was stopped by a filter; every other word is the provider's failure, known or not. `RULES` says
what an error means: its kind, who caused it, and whether it is worth another attempt; the first
rule that fits counts. An error is what the server says in its status, or in the body of a 200.

Pure: bytes in, values out. Nothing here raises for any bytes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias

import msgspec

from zerowait.patterns import lazy_pattern
from zerowait.types import FailureKind

Cause: TypeAlias = Literal["policy", "provider", "account"]
"""What caused the failure: the judged text, the server, or the user's account or settings."""

Again: TypeAlias = Literal["later", "never", "elsewhere"]
"""Send again after a wait; not at all; or only to another endpoint, since this one is of no use."""

LONGEST_WORDS: Final = 300
"""So many characters of a provider's words are shown."""

_SEARCHED: Final = 2000
_REMEMBERED: Final = 4096
_LONGEST_JSON: Final = 2**20
_DEEPEST: Final = 6
_WIDEST: Final = 16


class ReplyEnding(StrEnum):
    """What the end of a reply says about it."""

    COMPLETE = "complete"
    CUT = "cut"
    FILTERED = "filtered"
    BROKEN = "broken off"
    UNKNOWN = "unknown"


def _words(ending: ReplyEnding, *groups: str) -> dict[str, ReplyEnding]:
    return {word: ending for group in groups for word in group.split()}


ENDINGS: Final[Mapping[str, ReplyEnding]] = {
    **_words(
        ReplyEnding.COMPLETE,
        "stop tool_calls function_call",  # OpenAI and who follows it
        "end_turn stop_sequence tool_use",  # Anthropic, Bedrock
        "eos eos_token end_of_text endoftext end_of_sequence",  # Together, TGI, watsonx, AI21
        "complete completed finish finished done end normal success",  # Cohere, Responses, Qianfan
        "tool_call stop_str stop_token stop_word stop_words word",  # LiteLLM, llama.cpp's own API
        "reason_stop reason_tool_calls alternative_status_final",  # xAI, Yandex
    ),
    **_words(
        ReplyEnding.CUT,
        "length",  # OpenAI and who follows it
        "max_tokens max_output_tokens max_completion_tokens max_new_tokens",  # Anthropic, Responses
        "model_length model_context_window_exceeded context_length_exceeded",  # Mistral, Anthropic
        "token_limit maximum_tokens max_length max_len limit incomplete",  # watsonx, Aleph Alpha
        "error_limit length_limit too_long truncated reason_max_len reason_max_context",
        "max_tokens_reached token_limit_reached repetition_truncation",
        "alternative_status_truncated_final",
    ),
    **_words(
        ReplyEnding.FILTERED,
        "content_filter content_filtered refusal refused",  # OpenAI, Azure, Bedrock, Anthropic
        "safety recitation blocklist prohibited_content spii image_safety language",  # Gemini
        "image_prohibited_content image_recitation jailbreak",
        "sensitive contentfilter risk blacklist",  # Zhipu, Hunyuan, GigaChat
        "guardrail_intervened guardrails error_toxic moderation content_policy",
        "alternative_status_content_filter blocked",
    ),
    **_words(
        ReplyEnding.BROKEN,
        "abort aborted cancelled canceled cancel user_cancel shutdown",  # vLLM, SGLang, Cohere
        "error server_error internal_error network_error unknown other",  # Mistral, Zhipu, Gemini
        "insufficient_system_resource load unload not_finished",  # DeepSeek, Ollama, watsonx
        "timeout time_limit reason_time_limit in_progress queued failed",  # TensorRT-LLM, Responses
        "malformed_function_call unexpected_tool_call unspecified",  # Gemini
    ),
}
"""What each known word means, in lower case."""

_ABSENT: Final = frozenset({"", "null", "none"})
_UNSAID: Final = lazy_pattern(r"^(?:finish_?reason|stop_?reason)[._]")


def ending_of(finish: object, accepted: Collection[str] = ()) -> ReplyEnding:
    """What a reply's ``finish_reason`` says; one that is not there says nothing against it.

    Args:
        finish: the value, of whatever type.
        accepted: further words that mean a complete reply, as the endpoint's ``endings`` name them.

    >>> ending_of("end_turn").value, ending_of("MAX_TOKENS").value, ending_of(None).value
    ('complete', 'cut', 'complete')
    >>> ending_of("content_filter: RECITATION").value, ending_of("abort").value
    ('filtered', 'broken off')
    >>> ending_of("natural", ["natural"]).value
    'complete'
    """
    if not is_told(finish):
        return ReplyEnding.COMPLETE
    if isinstance(finish, Mapping) and isinstance(finish.get("type"), str):  # SGLang's own API
        finish = finish["type"]
    word = finish.strip().casefold() if isinstance(finish, str) else shown_ending(finish)
    if any(word == each.strip().casefold() for each in accepted):
        return ReplyEnding.COMPLETE
    return ENDINGS.get(_UNSAID.sub("", word.partition(":")[0].strip()), ReplyEnding.UNKNOWN)


def is_told(finish: object) -> bool:
    """Whether a reply says how it ended."""
    return finish is not None and not (
        isinstance(finish, str) and finish.strip().casefold() in _ABSENT
    )


class Attribution(msgspec.Struct, frozen=True, kw_only=True):
    """What a failed reply means.

    Args:
        kind: of the abstention, if it is the last attempt.
        cause: who brought it about.
        again: whether another attempt makes sense.
        status: the HTTP status that says the same: what the body of a 200 names, 402 for an account
            that is used up, 400 for what only this request is at fault for.
        words: the provider's own, shortened; they may quote a key, so they are scrubbed before.
        ending: the word in ``finish_reason``, where it is unknown.
        about_format: whether the words speak of structured output: its field, or the schema in it.
    """

    kind: FailureKind
    cause: Cause
    again: Again
    status: int
    words: str
    ending: str = ""
    about_format: bool = False


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table.

    Args:
        name: what has happened.
        servers: whose words these are.
        kind, cause, again, status: as in `Attribution`; without a status it stays what it is.
        statuses: under which it can happen.
        says: what codes and messages of the error say then.
        unless: what they do not say.
        waits: whether it can come with a wait that the server names.
    """

    name: str
    servers: str
    kind: FailureKind
    cause: Cause
    again: Again
    statuses: frozenset[int]
    says: re.Pattern[str]
    unless: re.Pattern[str] | None = None
    status: int | None = None
    waits: bool = True

    def fits(self, status: int, said: str, *, has_wait: bool) -> bool:
        """Whether an error with this status, and these codes and words, is one of these."""
        return (
            status in self.statuses
            and (self.waits or not has_wait)
            and self.says.search(said) is not None
            and (self.unless is None or self.unless.search(said) is None)
        )


def _any(*alternatives: str) -> re.Pattern[str]:
    return lazy_pattern("|".join(alternatives), re.IGNORECASE)


_PER_MINUTE: Final = _any(
    r"per[ _-]?(?:minute|second|min\b|sec\b)",
    r"/ ?(?:min|sec|minute|second)\b",
    r"\b[rtq]p[ms]\b",
    r"aliyun\.com|dashscope",  # DashScope says "insufficient_quota" of its tokens per minute
)
_PASSES: Final = _any(
    _PER_MINUTE.pattern, r"rate[ _-]?limit|throttl|try again in|resource_exhausted"
)
_REFUSABLE: Final = frozenset({400, 403, 409, 422, 424, 446, 451})
_MEASURED: Final = frozenset({400, 413, 422, 424})
_PAID: Final = frozenset({400, 401, 402, 403, 412, 429})

RULES: Final[Sequence[Rule]] = (
    Rule(
        name="the account may not be used any more",
        servers="OpenAI, Moonshot, Fireworks, Volcengine",
        kind=FailureKind.HTTP_ERROR,
        cause="account",
        again="elsewhere",
        status=402,
        statuses=_PAID,
        says=_any(
            r"\b(?:account|organi[sz]ation|project|team|workspace)\b[^.]{0,60}\b"
            r"(?:deactivated|suspended|disabled|terminated|flagged|banned|overdue|in arrears"
            r"|restricted(?! to\b))",
            r"account_?(?:deactivated|overdue|suspended)|access_?terminated|\bcode_1112\b",
            r"账[户号](?:已经?)?被?(?:锁定|冻结|停用|封禁)",
        ),
    ),
    Rule(
        name="more tokens in one request than the quota of a minute has",
        servers="OpenAI, Groq",
        kind=FailureKind.TOO_LONG,
        cause="policy",
        again="never",
        status=413,
        statuses=frozenset({413, 429}),
        says=_any(r"request (?:is )?too large"),
    ),
    Rule(
        name="a filter of the provider's stopped the request",
        servers=(
            "OpenAI, Azure, Anthropic, Gemini, DeepSeek, DashScope, Zhipu, Moonshot, Volcengine, "
            "MiniMax, xAI, OpenRouter, LiteLLM, Bedrock"
        ),
        kind=FailureKind.REFUSED,
        cause="policy",
        again="never",
        status=400,
        statuses=_REFUSABLE,
        says=_any(
            r"content[ _-]?filter(?:ed|ing)?\b|content[ _]?policy|ContentPolicyViolation",
            r"Responsible ?AI|content management policy|data_?inspection",
            r"content exists risk|high risk|risk[ _]?(?:control|detect)|SafetyError",
            r"(?:input|output|prompt|content|text|message|request|response)s?\b[^.]{0,30}\bflagged",
            r"flagged (?:for|as|by)|flagged_input",
            r"(?:requires?|failed|blocked by|rejected by|by) (?:\w+ ){0,3}moderation",
            r"moderation[ _](?:blocked|failed|error|flagged|refused)|content[ _]moderation",
            r"inappropriate|sensitive_?(?:content|information|words?|data)|new_sensitive",
            r"(?<!case[ -])\bsensitive (?:content|information|words?|data|text|topic)",
            r"敏感|不安全|违规|安全审核|内容审核|审核(?:不|未)通过",
            r"content_violation|unsafe_request|content is (?:not safe|unsafe)",
            r"prompt (?:was )?blocked",
            r"violat\w+ (?:\S+ ){0,6}(?:polic(?:y|ies)|guidelines|terms|rules)",
            r"(?:usage|safety|content|acceptable use) (?:policy|policies|guidelines)",
            r"block_?reason|prohibited[ _]content|safety_check|safety (?:system|filter|settings?)",
            r"blocked (?:by|due to|because of) (?:\w+ ){0,4}(?:safety|(?:content )?filter)",
            r"guardrail\w*\b[^.]{0,60}(?:block|interven|violat|trigger|failed)",
            r"guardrail_(?:intervened|triggered)",
            r"(?:block|interven|violat|trigger)\w*[^.]{0,40}\bguardrail",
            r"\bcode_(?:1301|1026|1027)\b|unsafe (?:content|prompt)|ip_?infringement",
        ),
        unless=_any(r"\bmodel\b[^.]{0,40}(?:does not exist|not found)|unknown (?:parameter|field)"),
    ),
    Rule(
        name="a filter of the provider's stopped the request, told as the server's failure",
        servers="Azure, DashScope, LiteLLM",
        kind=FailureKind.REFUSED,
        cause="policy",
        again="never",
        status=400,
        statuses=frozenset({500}),
        says=_any(
            r"content_filter|ContentPolicyViolation|ResponsibleAIPolicy|data_?inspection_?failed"
        ),
    ),
    Rule(
        name="more tokens than the model's context holds",
        servers=(
            "OpenAI, Azure, vLLM, SGLang, TGI, TensorRT-LLM, llama.cpp, Ollama, LiteLLM, Mistral, "
            "Together, Fireworks, DashScope, Gemini, Anthropic, xAI, Cohere, Zhipu, LM Studio"
        ),
        kind=FailureKind.TOO_LONG,
        cause="policy",
        again="never",
        status=413,
        statuses=_MEASURED,
        says=_any(
            r"context[ _-]?(?:length|window|size|limit)|exceed_context|context the overflows",
            r"(?:max(?:imum)?|model)[ _](?:model |context |prompt |input |sequence )*length",
            r"maximum (?:prompt|input|sequence|allowed) (?:length|tokens?)",
            r"max[_ ](?:seq|model|input|prompt|num|sequence|total)[_ ](?:len\w*|tokens?)\b",
            r"(?:prompt|inputs?|request|messages?|query|conversation|body)`?(?: text| tokens?)?"
            r" (?:is |are |was |were )?too (?:long|large)",
            r"too many (?:input |prompt |total )?tokens|tokens_limit_reached|prompt too long",
            r"(?:input|prompt|request|messages?|token)s? (?:token )?(?:length|tokens?|count)"
            r"[^.]{0,60}(?:exceed|should be|too long|longer|greater|less than)",
            r"`?inputs`? (?:tokens|must have)|input_too_long|prompt_too_long|request_too_large",
            r"\btokens?\b[^.]{0,60}exceeds? (?:the )?(?:max|limit|model|context|allowed)",
            r"exceed\w* (?:the )?(?:\w+ ){0,3}(?:token limit|max(?:imum)? (?:number of )?tokens)",
            r"exceed\w* (?:the )?max(?:imum)? (?:message |input |prompt )?tokens",
            r"longer than the (?:model|maximum|specified)|too large for model with",
            r"reduce (?:the length|your prompt|your message|the number of tokens)",
            r"too big compared|expected maxLength|string_above_max_length",
            r"at least 1, got -|default_max_tokens \(-",
            r"(?:input|prompt) tokens must be (?:no more|less|fewer|at most)",
            r"超长|长度超|超出(?:了)?(?:最大)?长度|过长|tokens?(?:数量?|长度)?超|\bcode_(?:1261|3051|336103|336007)\b",
        ),
        unless=_any(
            r"max_(?:completion_)?tokens is too large|completion tokens, whereas",
            r"throttl|please wait before|rate[ _]?limit",
        ),
    ),
    Rule(
        name="more tokens than the model's context holds, told as the server's failure",
        servers="llama.cpp, Ollama, vLLM, LiteLLM",
        kind=FailureKind.TOO_LONG,
        cause="policy",
        again="never",
        status=413,
        statuses=frozenset({500, 503}),
        says=_any(
            r"(?:exceed\w*|longer than)[^.]{0,60}context[ _](?:length|window|size)",
            r"context_length_exceeded|exceed_context|ContextWindowExceeded|prompt (?:is )?too long",
            r"(?:input|prompt) length[^.]{0,40}(?:exceed|longer|greater)",
        ),
    ),
    Rule(
        name="a quota of the day or month is used up, or there never was one",
        servers="Gemini, OpenRouter, Cohere, Qianfan",
        kind=FailureKind.HTTP_ERROR,
        cause="account",
        again="elsewhere",
        status=402,
        statuses=frozenset({402, 403, 429}),
        waits=False,
        says=_any(
            r"per[ _-]?(?:day|month)|daily (?:free |request |token )*(?:limit|quota|allocation)",
            r"/ ?(?:month|day)\b|per 86400 ?s|ByDay\b|limit: 0(?![\d.])|monthly",
            r"total request limit|使用上限|\bcode_(?:1304|1308|1309|1310|2056)\b",
        ),
        unless=_any(r"try again in|per[ -]minute|/ ?min\b"),
    ),
    Rule(
        name="the account has no quota or no money left",
        servers="OpenAI, Moonshot, MiniMax, Zhipu, DashScope, LiteLLM",
        kind=FailureKind.HTTP_ERROR,
        cause="account",
        again="elsewhere",
        status=402,
        statuses=_PAID,
        says=_any(
            r"insufficient_(?:\w+_)?(?:quota|balance|credits?|funds)|exceeded_current_quota",
            r"pre_consume_token_quota|token_quota_reached|SetLimitExceeded|Resource_?Pack_?Exhausted",
            r"not_enough_balance|key limit exceeded",
            r"billing_?(?:hard_?limit|not_?active|error|disabled)|payment_?required|arrearage",
            r"budget_?exceeded|budget has been exceeded|\bcode_(?:1113|1008|30001)\b|freetieronly",
        ),
        unless=_any(
            r"per[ _-]?(?:minute|second)|\b[rtq]p[ms]\b",
            r"(?:aliyun\.com|dashscope)(?![\s\S]*freetieronly)",
        ),
    ),
    Rule(
        name="the account has no quota or no money left, in words alone",
        servers="Anthropic, DeepSeek, xAI, Together, Fireworks, OpenRouter, Azure, Hugging Face",
        kind=FailureKind.HTTP_ERROR,
        cause="account",
        again="elsewhere",
        status=402,
        statuses=_PAID,
        waits=False,
        says=_any(
            r"(?:insufficient|not enough) (?:quota|(?:account )?balance|credits?|funds)",
            r"quota is (?:not enough|insufficient)|any credits|balance is 0\b",
            r"requires billing to be",
            r"exhausted (?:its|your|the) (?:\w+ ){0,3}(?:quota|credits?|allocation)",
            r"balance (?:is )?(?:too low|insufficient|not enough|exhausted)|credit balance",
            r"exceeded your (?:current|monthly|plan) (?:quota|included|limit|usage)",
            r"(?:out of|more|no|all available|run out of|used all|remaining) credits",
            r"credits? (?:limit|exhausted|depleted)|can only afford|payment required",
            r"billing (?:details|limit|issue|is not active)|spend(?:ing)? limit|good standing",
            r"(?:usage|quota|credit) limits? (?:ha(?:s|ve) been )?(?:reached|exceeded|exhausted)",
            r"reached your (?:\w+ ){0,3}usage limit|out of call volume quota",
            r"quota (?:has been |is )?(?:exhausted|used up|depleted)|free (?:allocated )?quota",
            r"欠费|余额不足|余额已|额度(?:已|不足|失败)|配额(?:已|不足)",
        ),
        unless=_PASSES,
    ),
    Rule(
        name="payment required",
        servers="DeepSeek, OpenRouter, Hugging Face, Together",
        kind=FailureKind.HTTP_ERROR,
        cause="account",
        again="elsewhere",
        status=402,
        statuses=frozenset({402}),
        says=lazy_pattern(""),
    ),
    Rule(
        name="too many requests or tokens in a while",
        servers="all",
        kind=FailureKind.RATE_LIMITED,
        cause="provider",
        again="later",
        statuses=frozenset({429}),
        says=lazy_pattern(""),
    ),
    Rule(
        name="too many requests, told by another status",
        servers="Bedrock, LiteLLM, gateways",
        kind=FailureKind.RATE_LIMITED,
        cause="provider",
        again="later",
        status=429,
        statuses=frozenset({400, 500}),
        says=_any(
            r"Throttling|too ?many ?requests|rate_limit_(?:exceeded|error)|RateLimitError",
            r"\bresource_exhausted\b|\bSlowDown\b|reduce your request rate",
        ),
    ),
    Rule(
        name="what the model wrote is not in the form that was asked for",
        servers="Groq",
        kind=FailureKind.UNPARSEABLE,
        cause="policy",
        again="later",
        statuses=frozenset({400}),
        says=_any(r"json_validate_failed|tool_use_failed"),
    ),
    Rule(
        name="the server failed, told as if the request were at fault",
        servers="LM Studio, NVIDIA, vLLM, Groq",
        kind=FailureKind.HTTP_ERROR,
        cause="provider",
        again="later",
        status=500,
        statuses=frozenset({400, 498}),
        says=_any(
            r"has crashed|\bDEGRADED\b|has errored already|engine ?(?:is )?dead",
            r"capacity[_ ]exceeded",
            r"out of memory|CUDA error|internal ?server ?error|APIConnectionError",
            r"upstream (?:connect|request timeout)",
        ),
    ),
    Rule(
        name="the model is being loaded",
        servers="LM Studio, llama-swap, Hugging Face, Bedrock",
        kind=FailureKind.HTTP_ERROR,
        cause="provider",
        again="later",
        status=503,
        statuses=frozenset({400, 404}),
        says=_any(
            r"\bmodel\b[^.]{0,60}\b(?:is|still|being)\b[^.]{0,20}\bload(?:ing|ed)\b(?![^.]{0,20}\bnot\b)",
            r"model_(?:is_)?loading|loading (?:the )?model\b|ModelNotReady|warming up",
        ),
        unless=_any(r"not (?:been )?loaded|no models? (?:is |are )?loaded|fail\w* to load"),
    ),
    Rule(
        name="a body that is too large",
        servers="all",
        kind=FailureKind.TOO_LONG,
        cause="policy",
        again="never",
        statuses=frozenset({413}),
        says=lazy_pattern(""),
    ),
    Rule(
        name="unavailable for legal reasons",
        servers="StepFun, SiliconFlow",
        kind=FailureKind.REFUSED,
        cause="policy",
        again="never",
        statuses=frozenset({451}),
        says=lazy_pattern(""),
    ),
    Rule(
        name="the server failed, or was in the way of itself",
        servers="all",
        kind=FailureKind.HTTP_ERROR,
        cause="provider",
        again="later",
        statuses=frozenset({408, 409, 423, 424, 425, 460, 499, *range(500, 1000)}),
        says=lazy_pattern(""),
    ),
    Rule(
        name="the request, its address or its key is wrong",
        servers="all",
        kind=FailureKind.HTTP_ERROR,
        cause="account",
        again="never",
        statuses=frozenset(range(1000)),
        says=lazy_pattern(""),
    ),
)
"""What errors mean; the first that fits."""

_BY_WORDS: Final[Sequence[tuple[re.Pattern[str], int]]] = (
    (_any(r"rate[ _]limit|too many requests|request limit|过于频繁|限流|并发超"), 429),
    (
        _any(
            r"(?:access token|api key|secret key)\b[^.]{0,60}(?:invalid|header|field)",
            r"login fail|NoAuth",
        ),
        401,
    ),
)
"""The status that the message of an error in the body of a 200 says, where no code does."""

_BY_NAME: Final[Sequence[tuple[re.Pattern[str], int]]] = (
    (_any(r"rate_?limit|too_?many_?requests|throttl|resource_?exhausted|limit_requests"), 429),
    (_any(r"limit_?exceeded\b(?<!token_limit_exceeded)(?<!context_limit_exceeded)"), 429),
    (_any(r"\b(?:1002|1039|1302|1303|1305|1308|2056)\b"), 429),  # MiniMax, Zhipu
    (_any(r"\b(?:17|18|19|33650[1-3])\b"), 429),  # Qianfan
    (
        _any(
            r"insufficient_|payment|billing|arrear|budget_exceeded|exceeded_current_quota|resource_?pack"
        ),
        402,
    ),
    (_any(r"overloaded|unavailable|no_available"), 503),
    (_any(r"gateway_?timeout|time_?out|deadline"), 504),
    (_any(r"server_?error|internal|api_error"), 500),
    (_any(r"content_?filter|content_policy|data_?inspection|block_?reason|moderation"), 400),
    (_any(r"context_length|too_long|exceed_context|invalid|bad_?request"), 400),
    (_any(r"authentication|unauthori[sz]ed|unauthenticated|no_?auth"), 401),
    (_any(r"permission|forbidden"), 403),
    (_any(r"not_?found"), 404),
)
"""The status of an error that names itself by a word, in the body of a 200."""


def attributed(
    status: int, body: bytes, *, has_wait: bool = False, accepted: Collection[str] = ()
) -> Attribution:
    """What a reply that is no answer means.

    Args:
        status: of the reply.
        body: of the reply, without our keys.
        has_wait: whether its headers name a wait.
        accepted: the endpoint's ``endings``.

    >>> attributed(429, b'{"error": {"code": "insufficient_quota"}}').again
    'elsewhere'
    >>> attributed(200, b'{"choices": null, "error": {"code": 429, "message": "busy"}}').status
    429
    """
    # a server in trouble says the same to everybody
    classify = _classified if len(body) <= _REMEMBERED else _classified.__wrapped__
    return classify(status, body, has_wait, tuple(accepted))


@lru_cache(maxsize=256)
def _classified(status: int, body: bytes, has_wait: bool, accepted: tuple[str, ...]) -> Attribution:  # noqa: FBT001 - the cache takes its arguments by place
    tree = _tree(body)
    report = _report(tree, body)
    where = f"status {status}"
    if not 200 <= status < 300:
        return _by_rule(status, report, where, has_wait=has_wait)
    if report.is_error:
        return _in_body(report, where, has_wait=has_wait)
    if _is_prompt_filtered(tree):
        return _by_rule(400, _PROMPT_FILTERED, where, has_wait=has_wait)
    broken = _broken_off(tree, accepted)
    if broken is not None:
        return broken
    words = report.shown(body) if report.messages else shortened(_text(body)) or "nothing at all"
    words = f"{where} without a chat completion in its body: {words}"
    return Attribution(
        kind=FailureKind.HTTP_ERROR, cause="provider", again="later", status=status, words=words
    )


def _is_prompt_filtered(tree: Any) -> bool:
    """Whether there is no choice because Azure's filter stopped the prompt."""
    if _first(tree, "choices") is not None:
        return False
    prompts = _get(tree, "prompt_filter_results")
    results = [
        _get(each, "content_filter_results")
        for each in (prompts if isinstance(prompts, list) else ())
    ]
    categories = [
        each for by_name in results if isinstance(by_name, Mapping) for each in by_name.values()
    ]
    return any(_get(each, "filtered") is True for each in categories)


def _in_body(report: _Report, where: str, *, has_wait: bool) -> Attribution:
    """An error in the body of a 200, which counts as if its status had said it."""
    named = report.status
    if named is not None and named >= 500 and str(named) not in report.codes:  # a word for anything
        found = _by_rule(400, report, f"{where} with an error in its body", has_wait=has_wait)
        if found.cause == "policy":
            return found
    if named is not None:
        return _by_rule(named, report, f"{where} with error {named} in its body", has_wait=has_wait)
    where = f"{where} with an error in its body"
    said = " ".join(report.messages)[:_SEARCHED]
    status = next((status for words, status in _BY_WORDS if words.search(said)), None)
    if status is not None:
        return _by_rule(status, report, where, has_wait=has_wait)
    found = _by_rule(400, report, where, has_wait=has_wait)
    if found.kind is FailureKind.HTTP_ERROR and found.again == "never":  # no word of it is known
        return _by_rule(500, report, where, has_wait=has_wait)
    return found


def _by_rule(status: int, report: _Report, where: str, *, has_wait: bool) -> Attribution:
    said = report.searched
    rules = (rule for rule in RULES if rule.fits(status, said, has_wait=has_wait))
    if _ANSWER_TOO_LONG.search(said) and _asks_for_too_much(said):
        rules = (rule for rule in rules if rule.kind is not FailureKind.TOO_LONG)
    rule = next(rules, RULES[-1])
    return Attribution(
        kind=rule.kind,
        cause=rule.cause,
        again=rule.again,
        status=status if rule.status is None else rule.status,
        words=_told(status, where, report.shown(), rule.again),
        about_format=_ABOUT_FORMAT.search(" ".join((said, *report.fields))) is not None,
    )


_ABOUT_FORMAT: Final = _any(
    r"response[_ -]?(?:format|schema|mime)|json[_ -]?schema|json[_ -]?mode|json_object",
    r"structured[_ -]?outputs?|output_config|text\.format|guided[_ -]?\w+|constrained decoding",
    r"\b(?:xgrammar|outlines|lm-format-enforcer|llguidance|grammar)\b|additionalProperties",
    r"grammar[_ -]?backend",
)
"""OpenAI, Azure, Anthropic, Gemini, DeepSeek, vLLM, SGLang, TGI, llama.cpp, Ollama, LiteLLM."""
_ANSWER_TOO_LONG: Final = _any(
    r"is too large: (?P<asked>\d+)\D{0,60}context length is (?P<most>\d+)",
    r"context length is (?P<most2>\d+)[\s\S]{0,160}?"
    r"(?P<asked2>\d+) (?:output tokens|in the completion)",
)


def _asks_for_too_much(said: str) -> bool:
    """Whether `max_tokens` alone is more than the model holds: no text is at fault for that."""
    found = _ANSWER_TOO_LONG.search(said)
    if found is None:
        return False
    most, asked = found["most"] or found["most2"], found["asked"] or found["asked2"]
    return int(asked[:18]) >= int(most[:18])


def _told(status: int, where: str, words: str, again: Again) -> str:
    """The provider's words, and ours where they help."""
    hint = ""
    if 300 <= status < 400:
        hint = "redirects are not followed; set base_url to where it leads"
    elif status == 404:
        hint = "check base_url and model"
    elif again == "elsewhere":
        hint = ""  # an account without money has a sound key
    elif status in (401, 403) and (not words or _OF_KEYS.search(words)):
        hint = "the key was refused; check the endpoint's api_key_env"
    return ": ".join(part for part in (where, hint, words or "no further words") if part)


_OF_KEYS: Final = _any(r"\bkeys?\b|api_key|auth|credential|token|sign ?in|log ?in")


def _broken_off(tree: Any, accepted: Collection[str]) -> Attribution | None:
    """A reply in the right form that did not end by itself, or says nothing at all."""
    choice = _first(tree, "choices") or _first(tree, "candidates") or tree
    if not isinstance(choice, Mapping):
        return None
    finish = _finish(tree, choice)
    ending, word = ending_of(finish, accepted), shown_ending(finish)
    if ending is ReplyEnding.BROKEN:
        return _left_undone(f"the reply was broken off: it ended with {word!r}")
    if ending is ReplyEnding.UNKNOWN:
        words = (
            f"the reply ended with {word!r}, which is no known end of a whole answer; if it is one "
            f"at this server, give the endpoint endings: [{word}]"
        )
        return _left_undone(words, ending=word)
    message = choice.get("message")
    content = message.get("content") if isinstance(message, Mapping) else "none was looked for"
    return None if content else _left_undone("the reply is empty: nothing was generated for it")


def _left_undone(words: str, *, ending: str = "") -> Attribution:
    return Attribution(
        kind=FailureKind.HTTP_ERROR,
        cause="provider",
        again="later",
        status=500,
        words=words,
        ending=ending,
    )


_FINISH: Final = ("finish_reason", "finishReason", "stop_reason")


def said_ending(*places: object) -> Any:
    """The word with which a reply says how it ended; None where none of `places` has one.

    What the server's own backend said counts where it is worse than what the server made of it.

    Args:
        places: mappings where servers write it: the choice, its message, the reply.
    """
    told = [each for each in places if isinstance(each, Mapping)]
    said = ((name, each.get(name)) for each in told for name in _FINISH)
    # a number in stop_reason is the token at which vLLM stopped
    spoken = (each for name, each in said if name != "stop_reason" or isinstance(each, str))
    finish = next(filter(is_told, spoken), None)
    native = told[0].get("native_finish_reason") if told else None
    if isinstance(native, str) and ending_of(finish) is ReplyEnding.COMPLETE:
        worse = (ReplyEnding.CUT, ReplyEnding.FILTERED, ReplyEnding.BROKEN)
        return native if ending_of(native) in worse else finish
    return finish


def _finish(tree: Any, choice: Mapping[str, Any]) -> Any:
    """The word with which a reply says how it ended, in any API's place for it; None without."""
    finish = said_ending(choice, choice.get("message"), tree)
    if finish is not None:
        return finish
    if not isinstance(tree, Mapping) or "choices" in tree or "output" not in tree:
        return None
    reason = _get(tree.get("incomplete_details"), "reason")
    return tree.get("status") if reason is None else reason


def is_error(value: object) -> bool:
    """Whether the field ``error`` of a body speaks of one: many servers always send the field.

    >>> is_error(None), is_error({}), is_error({"code": 0}), is_error({"code": 429})
    (False, False, False, True)
    """
    if isinstance(value, Mapping):
        if value.get("code") is not None:
            return bool(_code(value["code"])) or not isinstance(value["code"], int | str)
        return any(value.get(name) for name in ("message", "type", "msg", "status", "Code"))
    if isinstance(value, list):
        return any(map(is_error, value[:_WIDEST]))
    return bool(value) if isinstance(value, bool) else bool(_code(value))


def shown_ending(finish: object) -> str:
    """An ending as a word that can be written into a configuration."""
    if isinstance(finish, str):
        return " ".join(finish.split())[:40]
    try:
        return msgspec.json.encode(finish).decode()[:40]
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError):
        return type(finish).__name__


class _Report(msgspec.Struct, frozen=True):
    """What an error says: its codes in words or numbers, its messages, and the fields at fault."""

    codes: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    is_error: bool = False
    fields: tuple[str, ...] = ()
    raw: str = ""  # the body, where it has no field that is known

    @property
    def searched(self) -> str:
        """What rules look at; a code that is a number is marked as one."""
        codes = (f"code_{code}" if code.isdigit() else code for code in self.codes)
        return " ".join((*codes, *self.messages))[:_SEARCHED]

    @property
    def status(self) -> int | None:
        """The HTTP status that an error in a 200's body names."""
        for code in self.codes:
            if code.isdecimal() and 400 <= int(code[:9]) < 600:
                return int(code)
        said = " ".join(self.codes)
        return next((status for words, status in _BY_NAME if words.search(said)), None)

    def shown(self, body: bytes = b"") -> str:
        """The words for people."""
        said = "; ".join(dict.fromkeys(self.messages))
        names = [code for code in self.codes if code.casefold() not in _EVERY_ERRORS]
        name = next((name for name in names if not name.isdigit() and name not in said), "")
        text = ": ".join(part for part in (name, said) if part)
        field = next((field for field in self.fields if text and field not in text), "")
        text += f" ({field})" if field else ""
        return shortened(text or self.raw or body[:_SEARCHED].decode("utf-8", "replace"))


_EVERY_ERRORS: Final = frozenset(
    ("invalid_request_error", "error", "badrequesterror", "server_error", "validation")
)
_TAGS: Final = lazy_pattern(r"<(script|style)\b.*?</\1\s*>|<[^<>]*>", re.DOTALL | re.IGNORECASE)
# what steers a terminal, or turns the direction of writing
_CONTROL: Final = lazy_pattern(
    r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]"
)
_KEYLIKE: Final = lazy_pattern(
    r"\b(?:sk|pk|rk|gsk|xai|nvapi|hf|csk|pplx|tgp|fw|r8)[-_][\w*.\-]{3,}"
    r"|\bAIza[\w\-]{10,}|\beyJ[\w\-.]{10,}|(?<!\S)(?=\S*\*{3})\S+"  # in linear time
    r"|(?<=provided: )\S+|(?<=[Bb]earer )\S+"
)


def shortened(text: str) -> str:
    """Foreign words on one line, at most `LONGEST_WORDS` characters, what looks like a key struck.

    >>> shortened("Incorrect API key provided: sk-pl***ed.")
    'Incorrect API key provided: ***'
    """
    line = " ".join(_KEYLIKE.sub("***", _TAGS.sub(" ", _CONTROL.sub(" ", text))).split())
    return line if len(line) <= LONGEST_WORDS else line[: LONGEST_WORDS - 1] + "\u2026"


_STREAMED: Final = re.compile(rb"^data: ?(\{.*\})[ \r]*$", re.MULTILINE)
_CODES: Final = (
    *("code", "status", "status_code", "statusCode", "error_code", "errorCode", "http_code"),
    *("type", "error_type", "reason", "quotaId", "blockReason", "block_reason", "Code"),
    "finishReason",
)
_MESSAGES: Final = (
    *("message", "msg", "error_msg", "error_message", "errorMessage", "status_msg", "detail"),
    *("Message", "description", "raw", "error"),
)
_INNER: Final = (
    *("error", "errors", "message", "detail", "raw", "metadata", "innererror", "details"),
    *("violations", "base_resp", "promptFeedback", "prompt_feedback", "Error", "Response"),
)
_FIELD: Final = "loc"  # where FastAPI's refusals name the field: ["body", "response_format"]
_NO_CODES: Final = frozenset({"", "null", "none", "0", "200", "success", "ok", "completed"})


_PROMPT_FILTERED: Final = _Report(("content_filter",), ("the prompt was filtered",), is_error=True)


def _report(tree: Any, body: bytes) -> _Report:
    if tree is None or isinstance(tree, str):  # plain words, or a page
        text = tree or body[:_SEARCHED].decode("utf-8", "replace")
        return _Report(messages=(text[:_SEARCHED],) if text.strip() else ())
    codes: list[str] = []
    messages: list[str] = []
    fields: list[str] = []
    for name, said in _said(tree, 0):
        (codes if name in _CODES else fields if name == _FIELD else messages).append(said)
    raw = "" if codes or messages or not tree else _text(body)
    return _Report(tuple(codes), tuple(messages), _speaks_of_error(tree), tuple(fields), raw)


def _speaks_of_error(tree: Any) -> bool:
    """Whether the body of a 200 tells of an error, in any of the places for it."""
    if isinstance(tree, list):
        return any(map(_speaks_of_error, tree[:1]))
    if not isinstance(tree, Mapping):
        return False
    choice = _first(tree, "choices")
    return (
        is_error(tree.get("error"))
        or is_error(_get(choice, "error"))
        or "error" in (tree.get("object"), tree.get("type"))
        or bool(_get(tree.get("promptFeedback"), "blockReason"))
        or is_error(_get(_get(choice, "message"), "error"))
        or is_error(_get(tree.get("base_resp"), "status_code"))
        or is_error(_get(tree.get("Response"), "Error"))
        or (not (choice or tree.get("output") or tree.get("data")) and _has_code(tree))
    )


def _has_code(tree: Mapping[str, Any]) -> bool:
    names = ("code", "error_code", "status_code", "detail", "errors")
    return any(is_error(tree.get(name)) for name in names)


def _said(tree: Any, depth: int) -> Iterator[tuple[str, str]]:
    """Codes and messages of an error, the outermost first, each with its field's name."""
    if isinstance(tree, list) and depth <= _DEEPEST:
        for each in tree[:_WIDEST]:
            yield from _said(each, depth + 1)
    if not isinstance(tree, Mapping) or depth > _DEEPEST:
        return
    for name in _CODES:
        code = _code(tree.get(name))
        if code:
            yield name, code
            if name in ("blockReason", "block_reason"):
                yield name, "block_reason"
    yield from _field(tree.get(_FIELD))
    for name in _MESSAGES:
        value = tree.get(name)
        if isinstance(value, str) and value.strip() and _inside(value) is None:
            yield name, value.strip()[:_SEARCHED]
    for each in _inner(tree):
        yield from _said(each, depth + 1)


def _field(place: Any) -> Iterator[tuple[str, str]]:
    """The field that a list of names leads to, such as body.response_format."""
    if isinstance(place, list) and all(isinstance(each, str | int) for each in place):
        yield _FIELD, ".".join(map(str, place))[:_SEARCHED]


def _inner(tree: Mapping[str, Any]) -> Iterator[Any]:
    """Where the error may go on: in fields, in JSON that is text, and in the first choice."""
    for name in _INNER:
        value = tree.get(name)
        yield _inside(value) if isinstance(value, str) else value
    choice = _first(tree, "choices")
    yield _get(choice, "error")
    yield _get(_get(choice, "message"), "error")


def _inside(text: str) -> Any:
    """The JSON that a message consists of, or ends in; None for plain words."""
    start = text.find("{")
    if start < 0 or not text.rstrip().endswith("}"):
        return None
    tree = _tree(text[start:].encode("utf-8", "replace"))
    return tree if isinstance(tree, Mapping) else None


def _code(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | str):
        return ""
    text = str(value).strip()[:80]
    return "" if text.casefold() in _NO_CODES else text


def _first(tree: Any, name: str) -> Any:
    """The first of the list that is the field `name`, or None."""
    items = _get(tree, name)
    return items[0] if isinstance(items, list) and items else None


def _get(tree: Any, name: str) -> Any:
    return tree.get(name) if isinstance(tree, Mapping) else None


def _text(body: bytes) -> str:
    return body[:_SEARCHED].decode("utf-8", "replace")


def _tree(body: bytes) -> Any:
    if len(body) > _LONGEST_JSON:
        return None
    streamed = _STREAMED.findall(body) if body[:1] in b":de" else ()
    if streamed:  # a stream, though none was asked for: its error counts
        trees = (_tree(each) for each in streamed[:_WIDEST])
        return next((tree for tree in trees if _speaks_of_error(tree)), None)
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
