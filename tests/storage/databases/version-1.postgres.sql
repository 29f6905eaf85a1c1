-- A PostgreSQL database of version 1: what `pg_dump --inserts --no-owner` writes, without settings. Never changed.
CREATE TABLE public.audit_ends (
    file text NOT NULL,
    seq bigint NOT NULL,
    hash text NOT NULL
);
CREATE TABLE public.conversation_items (
    conversation_id text NOT NULL,
    "position" bigint NOT NULL,
    id text NOT NULL,
    data bytea NOT NULL
);
CREATE TABLE public.conversations (
    id text NOT NULL,
    caller_id text NOT NULL,
    created_at double precision NOT NULL,
    metadata bytea NOT NULL,
    pending_calls bytea,
    leased_by text,
    gateway_id bigint
);
CREATE TABLE public.elicitations (
    id text NOT NULL,
    response_id text NOT NULL,
    caller_id text NOT NULL,
    created_at double precision NOT NULL,
    expires_at double precision NOT NULL,
    question bytea NOT NULL,
    answer bytea,
    gateway_id bigint NOT NULL
);
CREATE TABLE public.holodeck_schema (
    version integer NOT NULL
);
CREATE TABLE public.idempotency_keys (
    caller_id text NOT NULL,
    key text NOT NULL,
    digest bytea NOT NULL,
    response_id text NOT NULL,
    created_at double precision NOT NULL
);
CREATE TABLE public.paused_responses (
    caller_id text NOT NULL,
    call_id text NOT NULL,
    response_id text NOT NULL,
    created_at double precision NOT NULL
);
CREATE TABLE public.pending_calls (
    caller_id text NOT NULL,
    id text NOT NULL,
    created_at double precision NOT NULL,
    digest bytea,
    claimed_by text,
    gateway_id bigint
);
CREATE TABLE public.probes (
    id bigint NOT NULL,
    data bytea NOT NULL
);
CREATE TABLE public.response_events (
    response_id text NOT NULL,
    first bigint NOT NULL,
    count bigint NOT NULL,
    events bytea NOT NULL
);
CREATE TABLE public.responses (
    id text NOT NULL,
    caller_id text NOT NULL,
    created_at double precision NOT NULL,
    status text NOT NULL,
    previous_id text,
    conversation_id text,
    gateway_id bigint,
    queue_position bigint,
    cancel_requested boolean DEFAULT false NOT NULL,
    resource bytea NOT NULL,
    input_items bytea NOT NULL,
    items bytea NOT NULL,
    pending bytea NOT NULL,
    events bytea NOT NULL,
    trace bytea
);
CREATE TABLE public.runs (
    id text NOT NULL,
    caller_id text NOT NULL,
    created_at double precision NOT NULL,
    status text NOT NULL,
    model text NOT NULL,
    servers text NOT NULL,
    tools text NOT NULL,
    question text NOT NULL,
    answer text NOT NULL,
    details bytea NOT NULL
);
CREATE TABLE public.spending (
    caller_id text NOT NULL,
    start bigint NOT NULL,
    source text NOT NULL,
    amount double precision NOT NULL
);
CREATE TABLE public.tail (
    id bigint NOT NULL,
    number bigint NOT NULL
);
CREATE TABLE public.usage_batches (
    source text NOT NULL,
    number bigint NOT NULL,
    stored_at double precision NOT NULL
);
CREATE TABLE public.usage_counts (
    period bigint NOT NULL,
    start bigint NOT NULL,
    caller_id text NOT NULL,
    model text NOT NULL,
    server text NOT NULL,
    tool text NOT NULL,
    status text NOT NULL,
    requests bigint NOT NULL,
    errors bigint NOT NULL,
    input_tokens bigint NOT NULL,
    cached_tokens bigint NOT NULL,
    cache_write_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    reasoning_tokens bigint NOT NULL,
    tool_calls bigint NOT NULL,
    priced bigint NOT NULL,
    cost double precision NOT NULL,
    seconds_0 bigint NOT NULL,
    seconds_1 bigint NOT NULL,
    seconds_2 bigint NOT NULL,
    seconds_3 bigint NOT NULL,
    seconds_4 bigint NOT NULL,
    seconds_5 bigint NOT NULL,
    seconds_6 bigint NOT NULL,
    seconds_7 bigint NOT NULL,
    seconds_8 bigint NOT NULL,
    seconds_9 bigint NOT NULL,
    seconds_10 bigint NOT NULL,
    seconds_11 bigint NOT NULL,
    seconds_12 bigint NOT NULL,
    seconds_13 bigint NOT NULL,
    seconds_14 bigint NOT NULL,
    seconds_15 bigint NOT NULL,
    seconds_16 bigint NOT NULL,
    seconds_17 bigint NOT NULL,
    seconds_18 bigint NOT NULL,
    seconds_19 bigint NOT NULL,
    seconds_20 bigint NOT NULL,
    first_token_0 bigint NOT NULL,
    first_token_1 bigint NOT NULL,
    first_token_2 bigint NOT NULL,
    first_token_3 bigint NOT NULL,
    first_token_4 bigint NOT NULL,
    first_token_5 bigint NOT NULL,
    first_token_6 bigint NOT NULL,
    first_token_7 bigint NOT NULL,
    first_token_8 bigint NOT NULL,
    first_token_9 bigint NOT NULL,
    first_token_10 bigint NOT NULL,
    first_token_11 bigint NOT NULL,
    first_token_12 bigint NOT NULL,
    first_token_13 bigint NOT NULL,
    first_token_14 bigint NOT NULL,
    first_token_15 bigint NOT NULL,
    first_token_16 bigint NOT NULL,
    first_token_17 bigint NOT NULL,
    first_token_18 bigint NOT NULL,
    first_token_19 bigint NOT NULL,
    first_token_20 bigint NOT NULL
);
INSERT INTO public.audit_ends VALUES ('audit.jsonl', 3, 'abc');
INSERT INTO public.conversation_items VALUES ('conv_1', 1, 'msg_1', '\x01ca35c4005b226f6e65225d');
INSERT INTO public.conversation_items VALUES ('conv_1', 2, 'msg_2', '\x01fd83ff505b2274776f225d');
INSERT INTO public.conversations VALUES ('conv_1', 'alice', 1, '\x016bf65c9c7b2261223a2262227d', '\x019d2b2ad35b2263616c6c225d', 'resp_lost', 7);
INSERT INTO public.elicitations VALUES ('elic_1', 'resp_lost', 'alice', 2.5, 4000000000, '\x0143049a1e7b226d657373616765223a2257686963683f227d', NULL, 7);
INSERT INTO public.holodeck_schema VALUES (1);
INSERT INTO public.idempotency_keys VALUES ('alice', 'key', '\x646967657374', 'resp_done', 4000000000);
INSERT INTO public.paused_responses VALUES ('alice', 'call_1', 'resp_done', 1.5);
INSERT INTO public.pending_calls VALUES ('alice', 'call_1', 1.5, '\x646967657374', 'resp_lost', NULL);
INSERT INTO public.pending_calls VALUES ('alice', 'call_2', 1.5, '\x6f74686572', 'resp_lost', 7);
INSERT INTO public.response_events VALUES ('resp_lost', 0, 2, '\x0158531da37b226e223a307d0a7b226e223a317d');
INSERT INTO public.responses VALUES ('resp_done', 'alice', 1.5, 'completed', 'resp_before', 'conv_1', 7, NULL, false, '\x01d5e2e7c67b226964223a22726573705f646f6e65227d', '\x01c52ed2b65b22696e707574225d', '\x015f81824c5b226974656d73225d', '\x01ebdf0c5f5b2270656e64696e67225d', '\x0135fd2ee17b2274797065223a226f6e65227d0a7b2274797065223a2274776f227d', '\x018225926e5b227472616365225d');
INSERT INTO public.responses VALUES ('resp_lost', 'alice', 2.5, 'in_progress', NULL, NULL, 7, 1, true, '\x01a3a6bf437b7d', '\x010d4cbb295b5d', '\x010d4cbb295b5d', '\x01a3a6bf437b7d', '\x0100000000', NULL);
INSERT INTO public.runs VALUES ('resp_done', 'alice', 1.5, 'completed', 'small', '
tickets
', '
search
add
', 'How many?', 'Three.', '\x7b227475726e73223a327d');
INSERT INTO public.spending VALUES ('alice', 3600, 'one', 0.25);
INSERT INTO public.usage_batches VALUES ('one', 1, 1.5);
INSERT INTO public.usage_counts VALUES (60, 60, 'alice', 'small', '', '', 'completed', 1, 0, 20, 0, 0, 5, 0, 2, 1, 0.25, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
INSERT INTO public.usage_counts VALUES (3600, 0, 'alice', 'small', '', '', 'completed', 1, 0, 20, 0, 0, 5, 0, 2, 1, 0.25, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
INSERT INTO public.usage_counts VALUES (86400, 0, 'alice', 'small', '', '', 'completed', 1, 0, 20, 0, 0, 5, 0, 2, 1, 0.25, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
ALTER TABLE ONLY public.audit_ends
    ADD CONSTRAINT audit_ends_pkey PRIMARY KEY (file);
ALTER TABLE ONLY public.conversation_items
    ADD CONSTRAINT conversation_items_conversation_id_id_key UNIQUE (conversation_id, id);
ALTER TABLE ONLY public.conversation_items
    ADD CONSTRAINT conversation_items_pkey PRIMARY KEY (conversation_id, "position");
ALTER TABLE ONLY public.conversations
    ADD CONSTRAINT conversations_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.elicitations
    ADD CONSTRAINT elicitations_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.idempotency_keys
    ADD CONSTRAINT idempotency_keys_pkey PRIMARY KEY (caller_id, key);
ALTER TABLE ONLY public.paused_responses
    ADD CONSTRAINT paused_responses_pkey PRIMARY KEY (caller_id, call_id, response_id);
ALTER TABLE ONLY public.pending_calls
    ADD CONSTRAINT pending_calls_pkey PRIMARY KEY (caller_id, id);
ALTER TABLE ONLY public.probes
    ADD CONSTRAINT probes_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.response_events
    ADD CONSTRAINT response_events_pkey PRIMARY KEY (response_id, first);
ALTER TABLE ONLY public.responses
    ADD CONSTRAINT responses_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.runs
    ADD CONSTRAINT runs_pkey PRIMARY KEY (caller_id, created_at, id);
ALTER TABLE ONLY public.spending
    ADD CONSTRAINT spending_pkey PRIMARY KEY (caller_id, start, source);
ALTER TABLE ONLY public.tail
    ADD CONSTRAINT tail_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.usage_batches
    ADD CONSTRAINT usage_batches_pkey PRIMARY KEY (source);
ALTER TABLE ONLY public.usage_counts
    ADD CONSTRAINT usage_counts_pkey PRIMARY KEY (period, start, caller_id, model, server, tool, status);
CREATE INDEX conversation_items_by_id ON public.conversation_items USING btree (id);
CREATE INDEX conversations_by_caller ON public.conversations USING btree (caller_id, created_at, id);
CREATE INDEX elicitations_by_response ON public.elicitations USING btree (response_id);
CREATE INDEX responses_by_caller ON public.responses USING btree (caller_id, created_at);
CREATE INDEX responses_to_cancel ON public.responses USING btree (gateway_id) WHERE (cancel_requested AND (status = ANY (ARRAY['queued'::text, 'in_progress'::text])));
CREATE INDEX responses_unfinished ON public.responses USING btree (status, queue_position, id, gateway_id) WHERE (status = ANY (ARRAY['queued'::text, 'in_progress'::text]));
CREATE INDEX responses_unfinished_of ON public.responses USING btree (caller_id, queue_position, id, status) WHERE (status = ANY (ARRAY['queued'::text, 'in_progress'::text]));
CREATE INDEX runs_by_age ON public.runs USING btree (created_at, id);
CREATE INDEX runs_not_completed ON public.runs USING btree (status, created_at, id, caller_id) WHERE (status <> 'completed'::text);
ALTER TABLE ONLY public.conversation_items
    ADD CONSTRAINT conversation_items_conversation_id_fkey FOREIGN KEY (conversation_id) REFERENCES public.conversations(id) ON DELETE CASCADE;
