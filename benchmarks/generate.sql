CREATE MACRO draw(row_number, what) AS
    (hash(seed(), row_number, what) % 1000000) / 1000000.0;
CREATE MACRO pick(row_number, what, n) AS (hash(seed(), row_number, what) % n)::BIGINT;
CREATE MACRO moment(row_number) AS
    TIMESTAMPTZ '2026-01-01 00:00:00+00' + to_milliseconds(row_number * 10);
-- Ordered like UUIDv7: the row's number stands where the time would.
CREATE MACRO id7(row_number, kind) AS printf(
    '0197%08x-7%03x-8%03x-%012x',
    row_number // 4096, row_number % 4096, kind, pick(row_number, kind, 281474976710656)
);
CREATE MACRO uuid7(row_number, kind) AS (
    id7(row_number, kind)[1:8] || '-' || id7(row_number, kind)[9:12] || id7(row_number, kind)[13:]
);
CREATE TABLE made_tasks AS
SELECT i, code, task_id(code) AS task_id, workload_id(task_id(code)) AS workload_id
FROM (
    SELECT i, normalize(
        '"""Task ' || i || '."""' || chr(10) || 'ROWS = ' || (16 + i) || chr(10) || t.code
    ) AS code
    FROM range(tasks()) AS r(i)
    JOIN texts AS t ON t.n = i % given_texts()
) AS numbered;
CREATE VIEW made_kernels AS
SELECT
    i,
    '# ' || seed() || ':' || i || chr(10) || array_to_string(
        list_transform(
            string_split(t.code, chr(10)),
            lambda line, j: CASE
                WHEN (i + j) % 9 = 0 THEN line || '  # ' || left(md5(i || ':' || j), 8)
                ELSE line
            END
        ),
        chr(10)
    ) AS code
FROM (SELECT i, pick(i, 'text', given_texts()) AS n FROM range(kernels()) AS r(i)) AS numbered
JOIN texts AS t USING (n);
CREATE TABLE kernel_ids AS
SELECT i, kernel_id(code) AS kernel_id FROM made_kernels;
-- Device 1 and what depends on it are only in varied lakes; so are all draws that name `varied`.
CREATE TABLE device_ids AS
SELECT
    i, sha256(CASE WHEN i = 0 THEN 'device' ELSE 'device' || i END) AS device_id,
    ['H200', 'H100'][i + 1] AS name
FROM range(1 + varied()) AS r(i);
CREATE MACRO device_of(row_number) AS
    CASE WHEN varied() = 1 AND draw(row_number, 'device') < 0.3 THEN 1 ELSE 0 END;
CREATE VIEW made_workloads AS
SELECT i, 0 AS size, task_id, workload_id, 'default' AS name, '{}' AS axes FROM made_tasks
UNION ALL
SELECT i, 1, task_id, large_workload_id(task_id), 'large', '{"rows": 4096}'
FROM made_tasks
WHERE varied() = 1 AND i % 2 = 0;
-- A verdict on every task, and one in five on the larger size where its task has one.
CREATE MACRO size_of(row_number, task) AS
    CASE WHEN varied() = 1 AND task % 2 = 0 AND draw(row_number, 'size') < 0.2 THEN 1 ELSE 0 END;
-- Every tenth attempt belongs to a training run, in groups of eight samples.
CREATE VIEW made_attempts AS
SELECT
    r.i, r.kernel_id, r.i % tasks() AS task, uuid7(r.i, 1) AS generation_id,
    varied() = 1 AND r.i // tasks() % 10 = 0 AS is_trained,
    r.i // tasks() // 10 // 8 AS step, (r.i // tasks() // 10 % 8)::INTEGER AS sample_index,
    varied() = 1 AND draw(r.i, 'words') < 0.25 AS has_words
FROM kernel_ids AS r;
-- table tasks
SELECT task_id, code, 'generated' AS source, 'Apache-2.0' AS license FROM made_tasks
;
-- table task_labels
SELECT
    'generated' AS suite, 'v1' AS suite_revision, 'task/' || i AS name, task_id,
    1 + (i % 3)::INTEGER AS level, i::INTEGER AS problem_id, 'family' || (i % 20) AS family,
    'generated' AS source
FROM made_tasks
;
-- table splits
SELECT
    'generated' AS suite, 'family' || i AS family,
    CASE WHEN i % 5 = 4 THEN 'test' ELSE 'train' END AS split, 'generated' AS rule
FROM range(20) AS r(i)
;
-- table workloads
SELECT workload_id, task_id, name, axes, 'get_inputs' AS generator FROM made_workloads
;
-- table policies
SELECT
    'policy' || i AS policy_id, 'policy ' || i AS name, 'model' AS kind,
    ['base', 'sft', 'self-supervised', 'contrastive'][i + 1] AS stage,
    CASE WHEN varied() = 1 THEN i END::INTEGER AS round
FROM range(4) AS r(i)
;
-- table devices
SELECT device_id, name, 'cuda' AS kind, 'NVIDIA ' || name AS model FROM device_ids
;
-- table runs
SELECT
    'run' || i AS run_id, ['evaluation', 'training'][i + 1] AS kind, 'generated' AS name,
    CASE WHEN i = 0 THEN '{"detectors": [], "every_detector": true}' ELSE '{}' END AS config,
    moment(i) AS started_at
FROM range(1 + varied()) AS r(i)
;
-- table kernels
SELECT
    kernel_id, code, 'kernel.py' AS path, 'ModelNew' AS entry_point, 'generated' AS source,
    'Apache-2.0' AS license, moment(i) AS created_at
FROM made_kernels
JOIN kernel_ids USING (i)
;
-- table kernel_features
SELECT
    kernel_id, 1 AS extractor_version, true AS parsed,
    ['pytorch', 'triton', 'cuda', 'cpp'][1 + pick(i, 'language', 4)] AS language,
    pick(i, 'language', 4) IN (1, 2) AS has_device_code, 1 AS global_functions,
    0 AS triton_kernels, false AS uses_cuda_graphs, false AS uses_torch_compile,
    false AS uses_torch_jit, false AS sets_cudnn_flags, false AS uses_streams,
    list_sort(list_distinct([
        ['fusion', 'shared_memory', 'vectorized_access', 'warp_reduction', 'in_place'][
            1 + pick(i, 'technique' || j, 5)
        ] FOR j IN range(2)
    ])) AS techniques,
    2000 AS code_bytes, 60 AS code_lines,
    -- In a varied lake, 8 kernels of a task in turn share 4 bands.
    [
        pick(
            CASE WHEN varied() = 1 AND j < 4 THEN i - i // tasks() % 8 * tasks() ELSE i END,
            'band' || j, 9000000000000
        ) FOR j IN range(16)
    ] AS minhash_bands,
    moment(i) AS created_at
FROM kernel_ids
;
-- table generations
SELECT
    r.generation_id, CASE WHEN r.is_trained THEN 'run1' ELSE 'run0' END AS run_id, m.task_id,
    'policy' || pick(r.i, 'policy', 4) AS policy_id, r.kernel_id,
    CASE WHEN r.is_trained THEN 'group' || r.task || ':' || r.step END AS group_id,
    CASE WHEN r.is_trained THEN r.sample_index END AS sample_index,
    CASE WHEN r.is_trained THEN r.step END AS step,
    CASE WHEN varied() = 1 AND r.i % 7 = 0 THEN 'island' END AS namespace,
    CASE WHEN r.has_words THEN 'Attempt ' || r.i || ' waits for memory.' END AS analysis,
    CASE WHEN r.has_words THEN 'Keep rows of attempt ' || r.i || ' in registers.' END AS design,
    CASE WHEN r.is_trained AND e.kernel_id IS NOT NULL THEN [e.kernel_id] END
        AS exemplar_kernel_ids,
    CASE WHEN r.is_trained AND e.kernel_id IS NOT NULL THEN [1.0] END AS exemplar_scores,
    CASE WHEN r.is_trained THEN 1000 END AS snapshot_id,
    'generated' AS source, 'Apache-2.0' AS license, moment(r.i) AS created_at
FROM made_attempts AS r
JOIN made_tasks AS m ON m.i = r.task
LEFT JOIN (SELECT * FROM kernel_ids WHERE varied() = 1) AS e ON e.i = r.i - tasks()
;
-- table evaluations
SELECT
    uuid7(r.i, 2) AS evaluation_id, 'run0' AS run_id,
    k.kernel_id, m.task_id,
    m.workload_id, d.device_id, 'judge' AS evaluator,
    1 AS evaluator_version,
    CASE WHEN draw(r.i % kernels(), 'status') < 0.7 THEN 'correct' ELSE 'incorrect' END AS status,
    CASE WHEN draw(r.i % kernels(), 'status') < 0.7 THEN NULL ELSE 'incorrect_numerical' END
        AS reason,
    CASE
        WHEN varied() = 1 AND draw(r.i % kernels(), 'status') < 0.7
            THEN draw(r.i % kernels(), 'equivalent') > 0.01
    END AS equivalent,
    [r.i, r.i + 1] AS seeds, 0.01 AS wall_s, moment(r.i) AS created_at
FROM range(part_begin(), part_end()) AS r(i)
JOIN kernel_ids AS k ON k.i = r.i % kernels()
JOIN made_workloads AS m
    ON m.i = (r.i % kernels()) % tasks() AND m.size = size_of(r.i, (r.i % kernels()) % tasks())
JOIN device_ids AS d ON d.i = device_of(r.i)
;
-- table timings
SELECT
    uuid7(2 * r.i + a, 3) AS timing_id, uuid7(r.i, 2) AS evaluation_id,
    uuid7(r.i, 4) AS session_id, ['kernel', 'eager'][a + 1] AS arm,
    k.kernel_id, m.task_id,
    m.workload_id, d.device_id,
    CASE WHEN varied() = 1 THEN ['gpu', 'latency'][1 + (r.i % 4 = 3)::INTEGER] END AS clock,
    list_transform(
        range(20),
        lambda j: (
            CASE WHEN a = 1 THEN 1.0 ELSE exp(1.2 - 2.4 * draw(r.i, 'speed')) END
            * (1 + 0.02 * draw(r.i * 40 + a * 20 + j, 'noise'))
        )::FLOAT
    ) AS samples_ms,
    range(20)::INTEGER[] AS blocks, 1 AS inner_loops, 'cold' AS cache, false AS noisy,
    moment(r.i) AS created_at
FROM range(part_begin(), part_end()) AS r(i)
JOIN kernel_ids AS k ON k.i = r.i % kernels()
JOIN made_workloads AS m
    ON m.i = (r.i % kernels()) % tasks() AND m.size = size_of(r.i, (r.i % kernels()) % tasks())
JOIN device_ids AS d ON d.i = device_of(r.i)
CROSS JOIN range(2) AS arms(a)
WHERE draw(r.i % kernels(), 'status') < 0.7 AND r.i % 100 < timed()
;
-- table scans
SELECT kernel_id, 'run0' AS run_id FROM kernel_ids
;
-- table findings
SELECT
    sha256('finding' || i) AS finding_id, kernel_id,
    'generated' AS detector, 1 AS detector_version, 'result_caching' AS class,
    moment(i) AS created_at
FROM kernel_ids
WHERE i % 1000 = 0
;
-- table standings
SELECT
    sha256('standing' || i) AS standing_id, sha256('finding' || i) AS finding_id,
    'confirmed' AS decision, 'benchmark' AS author, 'generated' AS why, moment(i) AS created_at
FROM range(0, kernels(), 1000) AS r(i)
;
-- table claims
SELECT
    sha256('claim' || k.i || gpu || baseline) AS claim_id, m.task_id, k.kernel_id,
    'policy' || pick(k.i, 'policy', 4) AS policy_id, gpu, baseline,
    CASE WHEN baseline = 'eager' THEN NULL ELSE released.kernel_id END AS baseline_kernel_id,
    'speedup' AS metric, round(exp(1.2 - 2.4 * draw(k.i, gpu || baseline)), 3) AS speedup,
    'release' || k.i % 3 AS source, 'v1' AS source_revision, moment(k.i) AS created_at
FROM kernel_ids AS k
JOIN made_tasks AS m ON m.i = k.i % tasks()
JOIN kernel_ids AS released ON released.i = k.i - k.i % 100
CROSS JOIN (SELECT unnest(['A100', 'H100']) AS gpu) AS gpus
CROSS JOIN (SELECT unnest(['eager', 'compile']) AS baseline) AS baselines
WHERE varied() = 1 AND k.i % 5 = 0
;
-- table rewards
SELECT
    'run1' AS run_id, generation_id, 'speedup' AS rule, 1 AS rule_version, step,
    draw(i, 'reward') AS raw, draw(i, 'reward') AS smoothed, draw(i, 'reward') - 0.5 AS advantage,
    moment(i) AS created_at
FROM made_attempts
WHERE is_trained
;
-- table metrics
SELECT
    'run1' AS run_id, name, step, draw(step, name) AS value, moment(step) AS created_at
FROM (SELECT DISTINCT step FROM made_attempts WHERE is_trained) AS steps
CROSS JOIN (SELECT unnest(['entropy', 'loss']) AS name) AS names
