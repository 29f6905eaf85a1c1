"""The callers of a gateway as its file has them: keys and their limits, and tokens of an identity provider.

A scope (`allow` of a key, and of tokens by a claim) has one list of patterns for each kind of thing. A pattern is a
name or a glob, with `!` in front where it denies. `gateway/auth/scope.py` compiles and matches them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import AwareDatetime, Field, ModelWrapValidatorHandler, model_validator

from holodeck.lib.secret import Secret
from holodeck.models.file_model import (
    Boolean,
    FileModel,
    Integer,
    Networks,
    NonEmpty,
    Number,
    PublicName,
    Violation,
    quote_value,
    validate_with_rules,
)
from holodeck.models.url import url_problem

# In front of a pattern that denies.
DENIAL_MARK = "!"
# Patterns of one list: far more than a person writes, and few enough to match for each new tool.
MAX_PATTERNS = 1_000

# Lists whose patterns name a server and something of it.
_SPLIT_KEYS = ("tools", "prompts")

Patterns = Annotated[list[NonEmpty], Field(max_length=MAX_PATTERNS)]
# Requests at once of one caller.
DEFAULT_KEY_IN_FLIGHT = 256
# Background responses of one caller on all gateways: four times what one gateway runs at once.
DEFAULT_KEY_BACKGROUND = 256
# Open WebSockets of one caller.
DEFAULT_KEY_SOCKETS = 256
# Event streams on which the MCP clients of one caller listen: as many as it may have sessions.
DEFAULT_KEY_MCP_STREAMS = 256
# Hours of a login at most: a month, in which a person that has left would otherwise still be let in.
MAX_SESSION_HOURS = 744
Role = Literal["operator", "viewer", "keys", "metrics"]
ROLES: tuple[Role, ...] = get_args(Role)
"""What a caller may do beside its own requests, the most first. `metrics` may make no other requests than for those."""
Algorithm = Literal["RS256", "RS384", "RS512", "ES256", "ES384", "PS256", "EdDSA"]
KeyHash = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9-]*$")]
KeyId = Annotated[str, Field(pattern=r"^[a-z0-9]{8,32}$")]
# Begins the ids of callers with keys.
KEY_CALLER_PREFIX = "key:"
# Begins the ids of groups, to which their members' spending is charged as well.
GROUP_PREFIX = "group:"
# Between the name and the id of a key in the id of its caller. No name of a key has it.
_KEY_ID_SIGN = "#"


class Scope(FileModel):
    """What a caller may use, by names and globs. A pattern that begins with `!` denies, and wins over all others.

    A list that is absent allows everything of its kind, an empty one nothing, one with only denials all the rest.
    """

    models: Patterns | None = None
    """Models that the caller may use, by their public names. Absent: all. E.g. `[small, '!small-old']`, not `small`."""
    agents: Patterns | None = None
    """Agents that the caller may use, by their public names. Absent: all. E.g. `['*']`, not `['']`."""
    servers: Patterns | None = None
    """MCP servers that the caller may use, those of agents included. Absent: all. E.g. `['*']`, not `['!']`."""
    tools: Patterns | None = None
    """Tools of MCP servers that the caller may use, as `server.tool` with the server's own name of the tool.

    Absent: all of the servers that it may use. Reading the resources of a server is its tool `read_resource`. E.g.
    `['*.get_*', '!*.get_secret']`, not `[github]`.
    """
    prompts: Patterns | None = None
    """Prompts of MCP servers that the caller may use, as `server.prompt` with the server's own name of the prompt.

    Absent: all of the servers that it may use; none where `tools` names tools that are allowed. E.g.
    `[github.review_*]`, not `[github]`.
    """

    @model_validator(mode="wrap")
    @classmethod
    def _check_rules(cls, data: Any, handler: ModelWrapValidatorHandler[Scope]) -> Scope:
        return validate_with_rules(cls.__name__, data, handler, _check_patterns)


class ClaimScopes(FileModel):
    """What tokens may use by the values of one of their claims."""

    claim: NonEmpty
    """Claim with the values: a text or a list of texts, such as `groups`. `scope` and `scp` are split at spaces. E.g.
    `groups`, not `''`."""
    values: dict[str, Scope] = Field(default_factory=dict)
    """By value of the claim, what its tokens may use, beside those of `groups[].claim_values`. A token with several
    values may use what any of them allows. E.g. `{admins: {}, readers: {tools: ['*.get_*']}}`, not `[admins]`."""


def split_pattern(pattern: str) -> tuple[bool, str]:
    """Return whether a pattern denies, and its name or glob."""
    return pattern.startswith(DENIAL_MARK), pattern.removeprefix(DENIAL_MARK)


def split_tool_pattern(glob: str) -> tuple[str, str]:
    """Return the globs of the server and of the tool in `server.tool`.

    Names of servers have no dots, those of tools may.
    """
    server, _, tool = glob.partition(".")
    return server, tool


def is_split(key: str) -> bool:
    """Return whether the patterns of a list are of the form `server.tool`."""
    return key in _SPLIT_KEYS


def _is_tool_pattern(pattern: str) -> bool:
    return all(split_tool_pattern(split_pattern(pattern)[1]))


def _check_patterns(data: dict[str, Any]) -> list[Violation]:
    found = []
    for key in Scope.model_fields:
        listed = data.get(key)
        for entry in listed if isinstance(listed, list) else ():
            if isinstance(entry, str) and entry.strip() == DENIAL_MARK:
                found.append(
                    Violation(key=key, message=f"{quote_value(entry)} denies nothing: a name or a glob follows")
                )
            elif is_split(key) and isinstance(entry, str) and not _is_tool_pattern(entry.strip()):
                mark = DENIAL_MARK if split_pattern(entry)[0] else ""
                server = split_tool_pattern(split_pattern(entry)[1])[0] or "*"
                noun = key.removesuffix("s")
                fix = f"Write server.{noun}, such as '{mark}{server}.*' for all {key}."
                found.append(Violation(key=key, message=f"{quote_value(entry)} does not name a {noun}", fix=fix))
    return found


class Budget(FileModel):
    """What a caller may spend on models in each period."""

    amount: Annotated[Number, Field(gt=0, allow_inf_nan=False)]
    """Amount in the currency of the prices (`model.price`). E.g. `20`, not `0`."""
    period: Literal["hour", "day", "week", "month"]
    """Period after which the amount is available again, by the calendar in UTC. A week begins on Monday. E.g. `month`,
    not `year`."""


class KeyLimits(FileModel):
    """Limits of one caller."""

    in_flight: Annotated[Integer, Field(ge=1)] = DEFAULT_KEY_IN_FLIGHT
    """Requests at once. A background response that is not durable counts until it has ended. E.g. `16`, not `0`."""
    background: Annotated[Integer, Field(ge=1)] = DEFAULT_KEY_BACKGROUND
    """Background responses that are queued or running, counted over all gateways with the same storage. E.g. `10`, not
    `0`."""
    requests_per_minute: Annotated[Integer, Field(ge=1)] | None = None
    """Requests per minute. Absent: unlimited. E.g. `60`, not `0`."""
    tokens_per_minute: Annotated[Integer, Field(ge=1)] | None = None
    """Model tokens per minute. Absent: unlimited. E.g. `100000`, not `0`."""
    sockets: Annotated[Integer, Field(ge=0)] = DEFAULT_KEY_SOCKETS
    """Open WebSockets, including idle ones. 0: none. E.g. `4`, not `-1`."""
    mcp_streams: Annotated[Integer, Field(ge=0)] = DEFAULT_KEY_MCP_STREAMS
    """Event streams on which MCP clients listen, including idle ones. 0: none. E.g. `16`, not `-1`."""


class GroupLimits(FileModel):
    """Limits of all members of a group together, each gateway by itself, beside those of each member."""

    in_flight: Annotated[Integer, Field(ge=1)] | None = None
    """Requests at once. Absent: unlimited. E.g. `64`, not `0`."""
    requests_per_minute: Annotated[Integer, Field(ge=1)] | None = None
    """Requests per minute. Absent: unlimited. E.g. `600`, not `0`."""
    tokens_per_minute: Annotated[Integer, Field(ge=1)] | None = None
    """Model tokens per minute. Absent: unlimited. E.g. `1000000`, not `0`."""


class CallerGroup(FileModel):
    """Callers that share a scope, limits and a budget: keys that name it, and tokens by the values of a claim."""

    name: PublicName
    """Name of the group, for `keys[].group`; unique in the file. E.g. `research`, not `research team`."""
    allow: Scope | None = None
    """What the members may use at most: a key with `allow` may use what both allow. Absent: everything. E.g. `{models:
    ['small*']}`, not `[small]`."""
    limits: GroupLimits = Field(default_factory=GroupLimits)
    """Limits of all members together. Absent: none. E.g. `{requests_per_minute: 600}`, not `600`."""
    budget: Budget | None = None
    """What all members together may spend on models, on all gateways with the same storage. Every model that they may
    use needs a `price` then. Absent: unlimited. E.g. `{amount: 200, period: month}`, not `200`."""
    claim_values: list[NonEmpty] = Field(default_factory=list)
    """Values of the claim of `jwt.allow_by_claim`, whose tokens are members. A token with the values of several groups
    may use what any of them allows, and belongs to the first one in the file. E.g. `[research-team]`, not
    `research-team`."""

    @property
    def id(self) -> str:
        """The id under which its spending is stored."""
        return f"{GROUP_PREFIX}{self.name}"


class CallerKey(FileModel):
    """A caller that authenticates with a key of the gateway. The file has only the hash of the key."""

    name: PublicName
    """Name of the caller, in logs and, without `id`, as the owner of stored data; unique in the file. E.g. `alice`, not
    `alice smith`."""
    id: KeyId | None = None
    """Random text that tells this caller from an earlier or later one of the same name: stored data, usage and budgets
    belong to the name with it. `holodeck keys create` writes it. Absent: they belong to the name alone. E.g.
    `qkzvhtwbarme`, not `Alice`."""
    hash: KeyHash
    """Hash of the key, as `holodeck keys create` prints it. E.g.
    `sha256:0000000000000000000000000000000000000000000000000000000000000000`, not `hd_0123456789`."""
    old_hash: KeyHash | None = None
    """Hash of the key before, which is accepted until `old_hash_expires`. `holodeck keys rotate` writes both. E.g.
    `sha256:1111111111111111111111111111111111111111111111111111111111111111`, not `hd_0123456789`, beside
    `{old_hash_expires: '2030-01-31T12:00:00Z'}`."""
    old_hash_expires: Annotated[AwareDatetime, Field(strict=False)] | None = None
    """Time after which the key before is refused, with its time zone, such as `2030-01-31T12:00:00Z`. E.g.
    `'2030-01-31T12:00:00Z'`, not `'2030-01-31T12:00:00'`, beside `{old_hash:
    'sha256:1111111111111111111111111111111111111111111111111111111111111111'}`."""
    role: Role | None = None
    """What the caller may do beside its own requests. Absent: nothing.

    `operator`: it reads the runs and the usage of all callers, makes and changes keys, starts and stops MCP servers,
    and reads `/metrics` and `/v1/config`. With `allow`, only `/metrics`, and the servers that it allows. `viewer`: it
    reads figures and no content: the usage of all callers, the list of keys with what is spent, and `/metrics`.
    `keys`: it makes, changes and revokes keys of its `group`, and nothing else. `metrics`: it reads `/metrics`, and
    every other request is refused. E.g. `operator`, not `admin`.
    """
    group: PublicName | None = None
    """Group of the caller, by its name in `groups`: its scope, limits and budget hold beside the caller's own. Absent:
    none. E.g. `research`, not `research team`."""
    owner: NonEmpty | None = None
    """Id of the person that has made the key for itself, such as `jwt:anna`; the gateway writes it. What the key spends
    counts for the owner's budget, too. Absent: the key is nobody's own. E.g. `jwt:anna`, not `''`."""
    expires: Annotated[AwareDatetime, Field(strict=False)] | None = None
    """Time after which the key is refused, and what runs for its caller ends, with its time zone. Absent: never. E.g.
    `'2030-01-31T12:00:00Z'`, not `'2030-01-31T12:00:00'`."""
    paused: Boolean = False
    """Whether the key is refused for now, with words that say so. What the caller has stored stays. E.g. `true`, not
    `'yes'`."""
    allow: Scope | None = None
    """Models, agents, MCP servers, tools and prompts that the caller may use. Absent: everything. E.g. `{models:
    [small], tools: ['*.*', '!*.delete_*']}`, not `[small]`."""
    limits: KeyLimits | None = None
    """Limits of this caller. Absent: `limits.key`. E.g. `{requests_per_minute: 60}`, not `60`."""
    budget: Budget | None = None
    """What this caller may spend on models, on all gateways with the same storage. Every model that it may use needs a
    `price` then. Absent: `limits.key_budget`. E.g. `{amount: 20, period: month}`, not `20`."""

    @property
    def caller_id(self) -> str:
        """The id of the caller: `key:NAME#ID`, or `key:NAME` for an entry without `id`."""
        named = f"{KEY_CALLER_PREFIX}{self.name}"
        return named if self.id is None else f"{named}{_KEY_ID_SIGN}{self.id}"

    @model_validator(mode="wrap")
    @classmethod
    def _check_rules(cls, data: Any, handler: ModelWrapValidatorHandler[CallerKey]) -> CallerKey:
        return validate_with_rules(cls.__name__, data, handler, _check_caller_key)


def without_key_id(caller_id: str) -> str:
    """Return the id of a caller as `key:NAME`, without the `id` of its key.

    The id of any other caller is not changed.
    """
    is_key = caller_id.startswith(KEY_CALLER_PREFIX)
    return caller_id.partition(_KEY_ID_SIGN)[0] if is_key else caller_id


def _check_caller_key(data: dict[str, Any]) -> list[Violation]:
    return [*_check_old_hash(data), *_check_group_role(data), *_check_other_word(data, "admin", "role: operator")]


def _check_group_role(data: dict[str, Any]) -> list[Violation]:
    if data.get("role") != "keys" or data.get("group") is not None:
        return []
    fix = "Name a group with 'group', whose keys it may make."
    return [Violation(key="role", message="the role 'keys' is about the keys of a group", fix=fix)]


def _check_other_word(data: dict[str, Any], key: str, fix: str) -> list[Violation]:
    """Return the problem of a key that people expect, and that has another name here."""
    if key not in data:
        return []
    return [Violation(key=key, message=f"there is no '{key}': what a caller may do is its role", fix=f"Write {fix}.")]


def _check_old_hash(data: dict[str, Any]) -> list[Violation]:
    keys = ("old_hash", "old_hash_expires")
    missing = [key for key in keys if data.get(key) is None]
    if len(missing) != 1:
        return []
    other = next(key for key in keys if key not in missing)
    return [Violation(key=other, message=f"'{missing[0]}' is missing: an old key is accepted for some time only")]


class PersonLogin(FileModel):
    """The login of persons to the console, by OpenID Connect with the identity provider of `jwt`."""

    client_id: NonEmpty
    """Client id of this gateway at the identity provider, which has `PUBLIC_URL/v1/login/callback` as its redirect URI.
    E.g. `holodeck`, not absent."""
    client_secret: Secret | None = None
    """Client secret, as a variable: `${CLIENT_SECRET}`. Absent: a public client. E.g. `${CLIENT_SECRET}`, not
    `${NOT_SET}`."""
    scopes: list[NonEmpty] = Field(default_factory=lambda: ["openid", "profile", "email"])
    """Scopes to request. `openid` is among them in any case. E.g. `[openid, groups]`, not `openid`."""
    session_hours: Annotated[Number, Field(gt=0, le=MAX_SESSION_HOURS)] = 12
    """Hours after which a person has to log in again. What the identity provider says of the person, such as its
    groups, is asked for then. E.g. `8`, not `0`."""


class TrustedHeader(FileModel):
    """Persons that a proxy in front of the gateway has authenticated."""

    name: HeaderName
    """Header in which the proxy names the person. The proxy must remove what a client sends in it. E.g.
    `x-forwarded-user`, not `x forwarded user`."""
    proxies: Annotated[Networks, Field(min_length=1)]
    """Networks of the proxies whose header is believed; that of any other address is ignored. E.g. `[10.1.0.0/24]`, not
    `[proxy]`."""
    claim_header: HeaderName | None = None
    """Header in which the proxy sends the values of the claim of `jwt.allow_by_claim`, separated by commas. Absent:
    a person has none of them. E.g. `x-forwarded-groups`, not `x forwarded groups`."""


class JWTCallers(FileModel):
    """Callers that authenticate with a token (JWT) of an identity provider."""

    issuer: NonEmpty
    """Identity provider: the required value of the claim `iss`. E.g. `https://login.example.com`, not absent."""
    audience: NonEmpty
    """Audience of the tokens: the required value of the claim `aud`. E.g. `holodeck`, not absent."""
    jwks_url: NonEmpty | None = None
    """URL of the provider's public keys. It or `jwks_file` is required. E.g. `https://login.example.com/keys`, not
    `http://login.example.com/keys`."""
    jwks_file: NonEmpty | None = None
    """File with the provider's public keys, relative to the gateway file. E.g. `keys.json`, not `missing.json`, beside
    `{jwks_url: null}`."""
    caller_claim: NonEmpty = "sub"
    """Claim with the name of the caller. E.g. `email`, not `''`."""
    role_by_scope: Annotated[dict[str, Role], Field(min_length=1)] | None = None
    """Roles of callers by the scopes of their tokens; of several, the one that may do most. Absent: no caller has one.
    E.g. `{holodeck.operator: operator}`, not `{holodeck.operator: admin}`."""
    allow: Scope | None = None
    """Models, agents, MCP servers and tools that callers with a token may use. Absent: everything.

    With `allow_by_claim`: of tokens that have none of its values, and absent: nothing. E.g. `{models: [small]}`, not
    `{model: [small]}`.
    """
    allow_by_claim: ClaimScopes | None = None
    """What tokens may use by the values of a claim, such as the groups of a person. E.g. `{claim: groups, values:
    {admins: {}}}`, not `{groups: {admins: {}}}`."""
    algorithms: tuple[Algorithm, ...] = Field(default=("RS256", "ES256"), strict=False)
    """Signature algorithms that are accepted. E.g. `[RS256]`, not `[HS256]`."""
    login: PersonLogin | None = None
    """Login of persons to the console. They may do what their tokens may. Absent: the console asks for a key. E.g.
    `{client_id: holodeck}`, not `true`."""
    trusted_header: TrustedHeader | None = None
    """Header by which a proxy names the persons that it has authenticated. Absent: none is believed. E.g. `{name:
    x-forwarded-user, proxies: [10.1.0.0/24]}`, not `x-forwarded-user`."""

    @model_validator(mode="wrap")
    @classmethod
    def _check_rules(cls, data: Any, handler: ModelWrapValidatorHandler[JWTCallers]) -> JWTCallers:
        return validate_with_rules(cls.__name__, data, handler, _check_jwt)


def _check_jwt(data: dict[str, Any]) -> list[Violation]:
    other = _check_other_word(data, "admin_scope", "role_by_scope: {SCOPE: operator}")
    return [*_check_one_key_set(data), *_check_login_issuer(data), *other]


def _check_login_issuer(data: dict[str, Any]) -> list[Violation]:
    issuer = data.get("issuer")
    problem = url_problem(issuer) if data.get("login") is not None and isinstance(issuer, str) else None
    if problem is None:
        return []
    fix = "A login reads the addresses of the identity provider there, so that it must be an https:// URL."
    return [Violation(key="issuer", message=problem.replace("'url'", "'issuer'"), fix=fix)]


def _check_one_key_set(data: dict[str, Any]) -> list[Violation]:
    url = data.get("jwks_url")
    if (url is None) == (data.get("jwks_file") is None):
        return [Violation(key="jwks_url", message="give 'jwks_url' or 'jwks_file', one of them")]
    problem = url_problem(url) if isinstance(url, str) else None
    if problem is not None:
        fix = "Use https://: a network that can replace the keys can impersonate every caller."
        return [Violation(key="jwks_url", message=problem.replace("'url'", "'jwks_url'"), fix=fix)]
    return []
