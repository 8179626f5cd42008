-- One row per verdict of this lake's own judge whose text shows a fault of the host: a compiler or
-- header that is missing, a full disk, a process that was ended for lack of memory. The newest first.
-- A kernel that has the words in its own code may have printed them, and is left out. What is found
-- is judged again on a host without the fault, so a wrong guess costs a judgment and no verdict.
WITH faults (fault, pattern) AS (
    VALUES
    ('disk', 'No space left on device|Disk quota exceeded|Read-only file system'),
    ('memory', 'Killed signal terminated program|Killed \(program \w+\)'),
    ('compiler', '(c\+\+|g\+\+|gcc|\bcc|clang|nvcc|ninja)''?: (command )?not found'),
    ('compiler', 'No such file or directory: ''[^'']*(c\+\+|g\+\+|gcc|clang|nvcc|ninja)'''),
    ('compiler', 'Command ''\[''which'', ''[^'']*''\]'' returned non-zero'),
    ('compiler', 'cannot execute [^\n]{0,3}(cc1plus|cc1|as|ld|cicc|ptxas)\b'),
    ('compiler', 'Failed to find C compiler|No working C\+\+ compiler found'),
    ('ninja', 'Ninja is required to load C\+\+ extensions'),
    ('headers', 'Python\.h: No such file or directory'),
    ('cuda', 'CUDA_HOME environment variable is not set|unsupported GNU version'),
    ('cuda', 'cannot find -lcudart|libcudart\.so[^\n]{0,20}: cannot open shared object file')
),
texts AS (
    SELECT *, concat_ws(chr(10), message, log) AS text
    FROM standing_evaluations
    WHERE evaluator = 'judge' AND origin IS NULL AND status IN ('compile_error', 'crash')
),
matches AS (
    SELECT
        texts.*, faults.fault,
        regexp_extract(texts.text, faults.pattern) AS quote
    FROM texts
    INNER JOIN faults ON regexp_matches(texts.text, faults.pattern)
    QUALIFY row_number() OVER (
        PARTITION BY texts.evaluation_id ORDER BY faults.fault, faults.pattern
    ) = 1
)
SELECT
    matches.evaluation_id, matches.kernel_id, matches.task_id, matches.workload_id,
    matches.device_id, matches.evaluator, matches.evaluator_version, matches."precision",
    matches.protocol, matches.fault, matches.quote, matches.status, matches.reason,
    devices."name" AS device, matches.created_at
FROM matches
INNER JOIN kernels ON kernels.kernel_id = matches.kernel_id
INNER JOIN devices ON devices.device_id = matches.device_id
WHERE
    NOT contains(kernels.code, matches.quote)
    AND NOT contains(coalesce(CAST(kernels.other_files AS VARCHAR), ''), matches.quote)
ORDER BY matches.created_at DESC, matches.evaluation_id
