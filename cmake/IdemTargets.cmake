include_guard()

# Language level, warnings and sanitizers for one of our own targets. They are
# set target by target, so that nothing reaches a program which builds idem as
# a part of itself.
function(idem_configure_target target)
    set_target_properties(${target} PROPERTIES
        C_STANDARD 11
        C_STANDARD_REQUIRED ON
        C_EXTENSIONS OFF
        C_VISIBILITY_PRESET hidden)
    # C_EXTENSIONS OFF also hides POSIX, which the C library shows on demand.
    target_compile_definitions(${target} PRIVATE _POSIX_C_SOURCE=200809L)
    target_compile_options(${target} PRIVATE
        -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes
        -Wmissing-prototypes -Wvla
        $<$<BOOL:${IDEM_WERROR}>:-Werror>)
    if(IDEM_SANITIZE)
        target_compile_options(${target} PRIVATE
            "-fsanitize=${IDEM_SANITIZE}" -fno-omit-frame-pointer
            -fno-sanitize-recover=all)
        target_link_options(${target} PRIVATE "-fsanitize=${IDEM_SANITIZE}")
    endif()
endfunction()
