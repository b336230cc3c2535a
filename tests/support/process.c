#include "process.h"

#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FDS_MAX = 1024, KILLED_MS = 10000 };

extern char **environ;

struct process {
    pid_t pid;
    int output_fd; /* a file without a name */
    int status;    /* as process_wait() returns it */
    bool has_ended;
};

static int open_output(void)
{
    char path[] = "/tmp/idem-output.XXXXXX";
    int fd = mkstemp(path);

    if (fd >= 0) {
        unlink(path);
        fcntl(fd, F_SETFD, FD_CLOEXEC);
        fcntl(fd, F_SETFL, O_APPEND);
    }
    return fd;
}

/* The child between fork and exec: nothing but system calls. */
static void become(const char *const *argv, char **env, int output_fd)
{
    sigset_t none;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    dup2(output_fd, STDOUT_FILENO);
    dup2(output_fd, STDERR_FILENO);
    /* Proton's descriptors are not close-on-exec. */
    for (int fd = STDERR_FILENO + 1; fd < FDS_MAX; fd++) {
        close(fd);
    }
    environ = env;
    execvp(argv[0], (char *const *)(uintptr_t)argv);
    _exit(127);
}

/* Ours, without the names that are given anew, and those. */
static char **join_env(const char *const *more)
{
    size_t ours = 0;
    size_t count = 0;
    size_t used = 0;
    char **env = NULL;

    while (environ[ours] != NULL) {
        ours++;
    }
    while (more != NULL && more[count] != NULL) {
        count++;
    }
    env = calloc(ours + count + 1, sizeof *env);
    if (env == NULL) {
        abort();
    }
    for (size_t i = 0; i < ours; i++) {
        size_t name = strcspn(environ[i], "=") + 1;
        bool is_new = true;

        for (size_t k = 0; k < count; k++) {
            is_new = is_new && strncmp(environ[i], more[k], name) != 0;
        }
        if (is_new) {
            env[used++] = environ[i];
        }
    }
    for (size_t k = 0; k < count; k++) {
        env[used++] = (char *)(uintptr_t)more[k];
    }
    return env;
}

process_t *process_start(const char *const *argv, const char *const *env)
{
    process_t *process = calloc(1, sizeof *process);
    char **joined = NULL;

    if (process == NULL) {
        return NULL;
    }
    process->output_fd = open_output();
    joined = join_env(env);
    process->pid = process->output_fd >= 0 ? fork() : -1;
    if (process->pid == 0) {
        become(argv, joined, process->output_fd);
    }
    free(joined);
    if (process->pid < 0) {
        fprintf(stderr, "process: cannot start %s: %s\n", argv[0],
                strerror(errno));
        if (process->output_fd >= 0) {
            close(process->output_fd);
        }
        free(process);
        return NULL;
    }
    return process;
}

/* Whether it has ended. */
static bool look(void *user)
{
    process_t *process = user;
    int status = 0;

    if (!process->has_ended &&
        waitpid(process->pid, &status, WNOHANG) == process->pid) {
        process->has_ended = true;
        process->status =
            WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    return process->has_ended;
}

void process_destroy(process_t *process)
{
    if (process == NULL) {
        return;
    }
    if (!look(process)) {
        kill(process->pid, SIGKILL);
        test_wait(look, process, KILLED_MS);
    }
    close(process->output_fd);
    free(process);
}

pid_t process_pid(const process_t *process)
{
    return process->pid;
}

bool process_signal(process_t *process, int signal)
{
    return !look(process) && kill(process->pid, signal) == 0;
}

int process_wait(process_t *process, int64_t timeout_ms)
{
    return test_wait(look, process, timeout_ms) ? process->status : -1;
}

char *process_output(process_t *process)
{
    struct stat stat;
    size_t size = 0;
    char *text = NULL;
    ssize_t count = 0;

    if (fstat(process->output_fd, &stat) == 0) {
        size = (size_t)stat.st_size;
    }
    text = malloc(size + 1);
    if (text == NULL) {
        abort();
    }
    count = pread(process->output_fd, text, size, 0);
    text[count > 0 ? count : 0] = '\0';
    return text;
}

typedef struct search {
    process_t *process;
    const char *text;
    bool is_found;
} search_t;

static bool is_written(void *user)
{
    search_t *search = user;
    bool has_ended = look(search->process);
    char *output = process_output(search->process);

    search->is_found = strstr(output, search->text) != NULL;
    free(output);
    return search->is_found || has_ended;
}

bool process_wait_output(process_t *process, const char *text,
                         int64_t timeout_ms)
{
    search_t search = {.process = process, .text = text};

    test_wait(is_written, &search, timeout_ms);
    return search.is_found;
}

int process_run(const char *const *argv, const char *const *env,
                int64_t timeout_ms, char **output)
{
    process_t *process = process_start(argv, env);
    int status = -1;

    if (process != NULL) {
        status = process_wait(process, timeout_ms);
        if (output != NULL) {
            *output = process_output(process);
        }
        process_destroy(process);
    } else if (output != NULL) {
        *output = NULL;
    }
    return status;
}
