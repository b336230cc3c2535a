# Finds Apache Qpid Proton's C library with its core, proactor and reactor
# interfaces, and gives the target QpidProton::QpidProton.
#
# Proton's own CMake config is preferred. Debian packages the library without
# it, so pkg-config is asked next.
if(TARGET QpidProton::QpidProton)
    set(QpidProton_FOUND TRUE)
    return()
endif()

find_package(Proton CONFIG QUIET)
if(Proton_FOUND AND Proton_LIBRARIES)
    set(QpidProton_VERSION "${Proton_VERSION}")
    set(QpidProton_LIBRARY "${Proton_LIBRARIES}")
    set(QpidProton_INCLUDE_DIR "${Proton_INCLUDE_DIRS}")
else()
    find_package(PkgConfig QUIET)
    if(PkgConfig_FOUND)
        pkg_check_modules(QpidProton_PC QUIET libqpid-proton)
        set(QpidProton_VERSION "${QpidProton_PC_VERSION}")
    endif()
    # The paths are hints only: Debian 12's file names an include folder that
    # does not exist, as its headers are in the compiler's own path.
    find_library(QpidProton_LIBRARY qpid-proton
        HINTS ${QpidProton_PC_LIBRARY_DIRS})
    find_path(QpidProton_INCLUDE_DIR proton/reactor.h
        HINTS ${QpidProton_PC_INCLUDE_DIRS})
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(QpidProton
    REQUIRED_VARS QpidProton_LIBRARY QpidProton_INCLUDE_DIR
    VERSION_VAR QpidProton_VERSION)

if(QpidProton_FOUND)
    add_library(QpidProton::QpidProton INTERFACE IMPORTED)
    target_include_directories(QpidProton::QpidProton
        INTERFACE ${QpidProton_INCLUDE_DIR})
    target_link_libraries(QpidProton::QpidProton
        INTERFACE ${QpidProton_LIBRARY})
endif()
mark_as_advanced(QpidProton_LIBRARY QpidProton_INCLUDE_DIR)
